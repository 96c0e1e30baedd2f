"""What operators' calls cost beside many flows, queues, figures, kept jobs and entries of the audit, in steps of
SQLite's machine."""

import asyncio
from datetime import timedelta

import pytest

from taskharbor.drivers import Figures, JobRecord
from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.sqlite import admin
from taskharbor.model.audit import AUDIT_KEPT_FOR, StoredAudit
from taskharbor.model.job import Seen
from tests import lanes
from tests.drivers.sqlite_files import NOW, fast_folder, opened
from tests.drivers.test_sqlite_cost import MICROS, Meter

pytestmark = pytest.mark.lane("sqlite")
fast_sqlite_folder = fast_folder
MINUTE = timedelta(minutes=1)
KEPT_JOBS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO taskharbor_jobs
    (num, id, queue, state, lined, worker, type, payload, created_at, finished_at, keep_for, holds)
SELECT i, 'kept-' || i, 'a', 3, 0, '', 't', x'', ?, ?, ?, 0 FROM n
"""


def compared(folder, few, many):
    """Decorates a scenario, which puts the steps of each call into `steps`: they are the same beside few and beside
    many of what a call must not go through. `writes` and `reads` count them."""

    async def live(scenario, number):
        path, steps = folder / "compared.db", dict[str, int]()
        async with opened(path, synchronous="normal") as driver:
            await scenario(driver, number, steps, Meter(driver), Meter(driver, driver.database.reader))
        path.unlink()
        return steps

    def compare(scenario):
        small, large = (asyncio.run(live(scenario, number)) for number in (few, many))
        for call, steps in small.items():
            assert large[call] <= 2 * steps + 20, f"{call}: {large[call]} hundred steps, {steps} beside few"

    return compare


def test_a_listing_of_flows_costs_the_same_whatever_their_size(fast_sqlite_folder):
    @compared(fast_sqlite_folder, 10, lanes.figure(test=3000, full=50_000))
    async def scenario(driver, members, steps, writes, reads):
        for flow in ("a", "b", "c"):
            jobs = [JobRecord(id=f"{flow}{n}", type="t", flow_id=flow) for n in range(members)]
            await driver.enqueue(jobs, NOW)
        await driver.cancel_flow("b", NOW)
        steps["flows"], page = await reads.of(driver.flows(now=NOW))
        assert [str(flow.status) for flow in page.items] == ["running", "cancelled", "running"]


def test_a_page_of_flows_costs_the_same_beside_many(fast_sqlite_folder):
    @compared(fast_sqlite_folder, 10, lanes.figure(test=3000, full=50_000))
    async def scenario(driver, flows, steps, writes, reads):
        await driver.enqueue([JobRecord(id=f"{n}", type="t", flow_id=f"{n:06}") for n in range(flows)], NOW)
        for order in ("id", "-id"):
            steps[order], page = await reads.of(driver.flows(now=NOW, limit=5, order=order))
            assert len(page.items) == 5


def test_upcoming_takes_two_lookups_for_each_queue(fast_sqlite_folder):
    """A thousand queues in one statement, however many jobs are scheduled in each."""

    @compared(fast_sqlite_folder, 1, lanes.figure(test=20, full=200))
    async def scenario(driver, jobs, steps, writes, reads):
        names = [f"q{n}" for n in range(1000)]
        for each in range(jobs):
            at = NOW + MINUTE * (jobs - each)
            await driver.enqueue([JobRecord(id=f"{q}-{each}", type="t", queue=q, run_at=at) for q in names], NOW)
        steps["upcoming"], at = await reads.of(driver.upcoming(names, NOW))
        assert at == NOW + MINUTE


def test_figures_cost_what_they_return(fast_sqlite_folder):
    @compared(fast_sqlite_folder, 5, lanes.figure(test=300, full=5000))
    async def scenario(driver, queues, steps, writes, reads):
        for minute in range(20):
            at = NOW + minute * MINUTE
            await driver.add_figures([Figures(at, f"q{n}", {"done": n + 1}) for n in range(queues)], NOW)
        steps["of a queue"], found = await reads.of(driver.figures(NOW, NOW + 20 * MINUTE, "q3"))
        assert len(found) == 20
        steps["added"], _ = await writes.of(driver.add_figures([Figures(NOW, "q3", {"done": 1})], NOW))


AUDITED = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO taskharbor_audit (id, at, done_by, data)
SELECT CAST('entry-' || i AS BLOB), ? - i / 3, CAST('someone' AS BLOB), zeroblob(300) FROM n
"""
STEPS_PER_ENTRY = 40  # that the audit looks at


def test_the_audit_costs_the_same_beside_many_entries(fast_sqlite_folder):
    """A page from the end, one behind a cursor and one from the middle; storing, and forgetting the next thousand."""

    @compared(fast_sqlite_folder, 1500, lanes.figure(test=20_000, full=100_000))
    async def scenario(driver, entries, steps, writes, reads):
        await driver.database.write(lambda session: session.all(AUDITED, entries, MICROS))
        steps["page"], page = await reads.of(driver.audit(limit=10))
        steps["next page"], page = await reads.of(driver.audit(limit=10, cursor=page.cursor))
        assert len(page.items) == 10
        middle = NOW - timedelta(microseconds=entries // 6)
        steps["until"], page = await reads.of(driver.audit(until=middle, limit=10))
        assert page.items[0].at == middle - timedelta(microseconds=1)
        spent, page = await reads.of(driver.audit(by="nobody", limit=10))
        assert (page.items, page.cursor is None) == ((), entries <= MAX_SCANNED_AUDIT)
        assert spent <= MAX_SCANNED_AUDIT * STEPS_PER_ENTRY / 100
        steps["put"], _ = await writes.of(driver.put_audit([StoredAudit(id="entry-5", at=NOW, by="anna")], NOW))
        late = NOW + AUDIT_KEPT_FOR
        steps["forgotten"], _ = await writes.of(driver.put_audit([], late))
        (left,) = await driver.database.read(lambda session: session.one("SELECT count(*) FROM taskharbor_audit"))
        assert left == entries - 1000


async def test_a_condition_adds_no_statement(fast_sqlite_folder):
    """What was seen is compared with the row that the call loads anyway."""
    async with opened(fast_sqlite_folder / "seen.db") as driver:
        told = list[str]()
        driver.database.writer.file.get().set_trace_callback(told.append)
        sent = {}
        for seen in (None, [Seen(0)]):
            for verb in ("cancel", "requeue", "delete"):
                if verb == "cancel":
                    await driver.enqueue([JobRecord(id="a", type="t")], NOW)
                if seen is not None:
                    seen = [Seen.of(await driver.inspect("a", NOW))]
                told.clear()
                given = () if verb == "delete" else (NOW,)
                assert await getattr(driver, verb)(["a"], *given, seen=seen) == [None]
                sent[verb, seen is None] = len(told)
    assert all(sent[verb, False] == sent[verb, True] > 0 for verb in ("cancel", "requeue", "delete")), sent


def test_prune_does_not_go_through_jobs_that_are_kept(fast_sqlite_folder, monkeypatch):
    """They finished long ago, and stay for a year; what comes after them is pruned by the first call."""
    monkeypatch.setattr(admin, "MAX_PRUNE_SCAN_JOBS", 100)
    year = timedelta(days=365) // timedelta(microseconds=1)

    @compared(fast_sqlite_folder, 10, lanes.figure(test=3000, full=200_000))
    async def scenario(driver, kept, steps, writes, reads):
        given = (kept, MICROS, MICROS - 10**9, year)
        await driver.database.write(lambda session: session.all(KEPT_JOBS, *given))
        await driver.enqueue([JobRecord(id="plain", type="t", queue="a")], NOW)
        (held,) = await driver.reserve(["a"], NOW, MINUTE, 1, "w")
        await driver.ack(held.lease, NOW)
        steps["prune"], number = await writes.of(driver.prune(NOW + MINUTE, 10))
        assert number == 1
