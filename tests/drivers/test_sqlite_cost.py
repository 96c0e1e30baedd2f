"""What a reserve costs beside a hundred thousand of everything, in steps of SQLite's machine and not in seconds.

The same reserve is counted on a small file and on a large one. A statement that goes through what it does not need
costs a thousand times as much there; the intended index is read from the query plan as well. What it costs to write a
row that holds much is not seen in steps: for members of groups, the bytes that SQLite reads and writes are counted too.
"""

import asyncio
import itertools
import re
import sqlite3
import statistics
from datetime import timedelta

import pytest

from taskharbor.drivers import Ack, Amend, Fail, JobRecord, Reserved, Retry
from taskharbor.drivers.base import MAX_SCANNED_JOBS
from taskharbor.drivers.heads import LOOKS
from taskharbor.drivers.sqlite import SqliteDriver, admin, statements
from tests import lanes
from tests.drivers.sqlite_files import LEASE, NOW, fast_folder

pytestmark = pytest.mark.lane("sqlite")
fast_sqlite_folder = fast_folder
MICROS = int(NOW.timestamp()) * 1_000_000
MANY = lanes.figure(test=100_000, full=300_000)
QUEUES = ("a", "b", "c")
STEPS_PER_JOB = 60  # of one that a listing looks at
STEPS_PER_GROUP = 100  # of one whose first job `heads` looks at

# state, lined, priority, group, and the column that holds the time the state is about
CROWD = {
    "ready": (1, 1, 0, None, None),
    "scheduled": (1, 0, 9, None, "moment"),
    "dead": (4, 0, 5, None, "finished_at"),
    "done": (3, 0, 5, None, "finished_at"),
    "blocked": (0, 0, 9, None, None),
}
INSERT = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO taskharbor_jobs (
    num, id, queue, state, lined, rank, time, arrival, moment, token, worker, settled, settled_as, holds, type,
    payload, run_at, attempts, max_attempts, deliveries, lost, grp, group_limit, last_error, reason, created_at,
    finished_at, priority)
SELECT {base} + i, '{kind}-' || i, substr('abc', 1 + i % 3, 1), {state}, {lined}, -{priority}, {time} + i, {base} + i,
    {moment}, '', '', '', '', 0, 't', CAST('{{}}' AS BLOB), {moment}, 0, 0, 0, 0, {group}, 0, '', '', {time},
    {finished}, {priority}
FROM n
"""


def fill(path, count):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    base = 0
    for kind, (state, lined, priority, _, timed) in CROWD.items():
        later = MICROS + 10**12
        connection.execute(
            INSERT.format(
                count=count,
                base=base,
                kind=kind,
                state=state,
                lined=lined,
                priority=priority,
                time=MICROS - 10**9,
                moment=f"{later} + i" if timed == "moment" else "NULL",
                finished=f"{MICROS} - i" if timed == "finished_at" else "NULL",
                group="NULL",
            )
        )
        base += count
    # As many groups with a member each, all of them full: one job is inflight in each.
    connection.execute(
        INSERT.format(
            count=count,
            base=base,
            kind="grouped",
            state=1,
            lined=1,
            priority=0,
            time=MICROS - 10**9,
            moment="NULL",
            finished="NULL",
            group="'g' || i",
        )
    )
    connection.execute(
        "INSERT INTO taskharbor_groups SELECT queue, grp, NULL, 1, NULL FROM taskharbor_jobs WHERE grp IS NOT NULL"
    )
    for queue in QUEUES:
        connection.execute("INSERT INTO taskharbor_queues (name) VALUES (?)", (queue,))
    connection.execute("UPDATE taskharbor_meta SET number = ?", (base + count + 1,))
    connection.execute("COMMIT")
    connection.close()


class Meter:
    """Counts the steps of a connection's statements, a hundred at a time."""

    def __init__(self, driver, owner=None):
        self._connection = (owner or driver.database.writer).file.get()

    async def of(self, call):
        steps = 0

        def step():
            nonlocal steps
            steps += 1

        self._connection.set_progress_handler(step, 100)
        answer = await call
        self._connection.set_progress_handler(None, 100)
        return steps, answer


async def measured(path, count, analyze):
    driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
    await driver.open()
    await asyncio.to_thread(fill, path, count)
    if analyze:
        await driver.database.write(lambda session: session.all("ANALYZE"))
    meter = Meter(driver)
    steps = {}
    steps["reserve"], held = await meter.of(driver.reserve(QUEUES, NOW, LEASE, 100, "w"))
    assert len(held) == 100
    steps["extend"], _ = await meter.of(driver.extend([item.lease for item in held], NOW, LEASE))
    steps["ack"], _ = await meter.of(driver.settle([Ack(item.lease) for item in held[:50]], NOW))
    steps["retry"], _ = await meter.of(driver.settle([Retry(item.lease, None, 1) for item in held[50:]], NOW))
    grouped = [JobRecord(id=f"new-{n}", type="t", queue="a", group=f"new-{n % 5}") for n in range(20)]
    steps["enqueue"], _ = await meter.of(driver.enqueue(grouped, NOW))
    steps["grouped"], held = await meter.of(driver.reserve(["a"], NOW, LEASE, 10, "w"))
    assert sum(item.job.group is not None for item in held) == 5
    steps["release"], number = await meter.of(driver.release("w", NOW))
    assert number == 10
    steps["prune"], number = await meter.of(driver.prune(NOW - timedelta(days=1), 10))
    steps["empty"], held = await meter.of(driver.reserve(["nothing"], NOW, LEASE, 10, "w"))
    assert held == []
    steps["fail"], _ = await meter.of(failed(driver))
    some = range(200, 300, 5)  # which nothing above was about
    for verb, kind in (("cancel", "scheduled"), ("cancel", "ready"), ("cancel", "blocked"), ("requeue", "dead")):
        call = getattr(driver, verb)([f"{kind}-{number}" for number in some], NOW)
        steps[f"{verb} {kind}"], answers = await meter.of(call)
        assert answers == [None] * len(some)
    steps["delete"], answers = await meter.of(driver.delete([f"done-{number}" for number in some]))
    assert answers == [None] * len(some)
    reads = Meter(driver, driver.database.reader)
    steps["inspect"], _ = await reads.of(driver.inspect("dead-1", NOW))
    steps["results"], _ = await reads.of(driver.results([f"done-{number + 1}" for number in some]))
    steps["list"], _ = await reads.of(driver.list(now=NOW, limit=10))
    steps["is_paused"], _ = await reads.of(driver.is_paused("a"))
    await measure_listings(driver, reads, steps)
    changes = [Amend(id=f"scheduled-{n}", deliveries=0, edits=0, priority=1) for n in range(100, 120)]
    steps["amend"], answers = await meter.of(driver.amend(changes, NOW))
    assert answers == [None] * len(changes)
    await driver.close()
    path.unlink()  # half a gigabyte in a folder that may be memory
    return steps


async def measure_listings(driver, reads, steps):
    """Every listing that an operator asks for, and what a worker asks while it is idle."""
    assert len(await driver.reserve(["a"], NOW, LEASE, 10, "w")) == 10
    for state in ("dlq", "cancelled", "blocked", "scheduled", "inflight"):
        for order in ("id", "-id"):
            call = driver.list(now=NOW, state=state, queue="a", limit=5, order=order)
            steps[f"list {state} {order}"], page = await reads.of(call)
            assert page.items
    steps["list dlq since"], page = await reads.of(driver.list(now=NOW, state="dlq", since=NOW - LEASE, limit=5))
    assert len(page.items) == 5
    for wanted in ({"state": "dlq", "error_class": "E"}, {"queue": "none"}, {"state": "ready"}):
        spent, _ = await reads.of(driver.list(now=NOW, limit=5, **wanted))
        assert spent <= MAX_SCANNED_JOBS * STEPS_PER_JOB / 100, f"{wanted}: {spent} hundred steps"
    steps["counts"], counted = await reads.of(driver.counts(NOW, cap=20))
    assert set(counted["a"].values()) == {20} or counted["a"]["inflight"] < 20
    steps["upcoming"], at = await reads.of(driver.upcoming(QUEUES, NOW))
    assert at == NOW + LEASE
    spent, found = await reads.of(driver.heads(QUEUES, NOW, 20))
    assert all(len(head.next) == 20 for head in found)
    assert spent <= LOOKS * STEPS_PER_GROUP / 100, f"heads: {spent} hundred steps"  # by the groups, to a bound


async def failed(driver):
    """A reserve and as many failures."""
    held = await driver.reserve(["b"], NOW, LEASE, 20, "w")
    assert await driver.settle([Fail(item.lease, "over", 1, NOW) for item in held], NOW) == [None] * 20


@pytest.mark.left_to("full", except_for=lanes.Chosen("False"))
@pytest.mark.parametrize("analyze", [False, True])
def test_nothing_costs_more_beside_a_hundred_thousand_of_everything(fast_sqlite_folder, analyze):
    small = asyncio.run(measured(fast_sqlite_folder / f"small-{analyze}.db", 300, analyze))
    large = asyncio.run(measured(fast_sqlite_folder / f"large-{analyze}.db", MANY, analyze))
    for call, steps in small.items():
        assert large[call] <= 2 * steps + 20, f"{call}: {large[call]} hundred steps, {steps} on a small file"


def test_prune_is_bounded_beside_an_open_run(fast_sqlite_folder, monkeypatch):
    """Its finished jobs stay, however many they are; what comes after them is pruned all the same."""
    monkeypatch.setattr(admin, "MAX_PRUNE_SCAN_JOBS", 100)
    path, late = fast_sqlite_folder / "open-run.db", NOW + timedelta(days=1)

    async def scenario(members):
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        run = [JobRecord(id=f"run-{n}", type="t", queue="a", flow_id="run") for n in range(members)]
        for first in range(0, members, 10_000):
            await driver.enqueue(run[first : first + 10_000], NOW)
        await driver.enqueue([JobRecord(id="last", type="t", queue="b", flow_id="run")], NOW)
        await driver.enqueue([JobRecord(id=f"free-{n}", type="t", queue="a") for n in range(5)], NOW)
        held = list[Reserved]()
        while some := await driver.reserve(["a"], NOW, timedelta(hours=1), 10_000, "w"):  # a call gives no more
            held += some
        assert len(held) == members + 5
        for first in range(0, len(held), 20):
            ended = NOW + timedelta(milliseconds=first)
            assert not any(await driver.settle([Ack(item.lease) for item in held[first : first + 20]], ended))
        meter = Meter(driver)
        steps: list[int] = []
        pruned: list[int] = []
        while sum(pruned) < 5:
            spent, number = await meter.of(driver.prune(late, 10))
            steps.append(spent)
            pruned.append(number)
            assert len(pruned) <= members, "what comes after the run is never pruned"
        assert await driver.prune(late, 10) == 0
        (last,) = await driver.reserve(["b"], NOW, LEASE, 1, "w")
        await driver.settle([Ack(last.lease)], NOW)
        while await driver.counts(NOW):
            pruned.append(await driver.prune(late, 1000))
        assert sum(pruned) == members + 6
        await driver.close()
        path.unlink()
        return max(steps)

    large = asyncio.run(scenario(lanes.figure(test=2000, full=100_000)))
    assert large <= 2 * asyncio.run(scenario(100)) + 20


def test_queues_that_a_reserve_does_not_name_cost_nothing(fast_sqlite_folder):
    """A thousand queues with a few jobs each, beside the two that a call is about."""
    path = fast_sqlite_folder / "queues.db"

    async def scenario(queues):
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        jobs = [JobRecord(id=f"{n}-{each}", type="t", queue=f"q{n}") for n in range(queues) for each in range(3)]
        await driver.enqueue(jobs, NOW)
        meter, steps = Meter(driver), {}
        steps["reserve"], held = await meter.of(driver.reserve(["q1", "q2"], NOW, LEASE, 6, "w"))
        steps["settle"], _ = await meter.of(driver.settle([Ack(item.lease) for item in held], NOW))
        steps["enqueue"], _ = await meter.of(driver.enqueue([JobRecord(id="new", type="t", queue="q1")], NOW))
        steps["release"], _ = await meter.of(driver.release("w", NOW))
        assert len(held) == 6
        await driver.close()
        path.unlink()
        return steps

    small, large = asyncio.run(scenario(5)), asyncio.run(scenario(lanes.figure(test=1000, full=10_000)))
    assert all(large[call] <= 2 * steps + 20 for call, steps in small.items()), (small, large)


PLANS = {
    "ready": "USING INDEX taskharbor_jobs_line (queue=? AND grp=?)",
    "group_head": "USING INDEX taskharbor_jobs_line (queue=? AND grp=?)",
    "next_group": "USING COVERING INDEX taskharbor_groups_turn (queue=? AND turn>?)",
    "move_clock": "USING COVERING INDEX taskharbor_jobs_when (state=? AND queue=? AND moment>? AND moment<?)",
    "ack": "USING INDEX taskharbor_jobs_id (id=?)",
    "grant": "USING INTEGER PRIMARY KEY (rowid=?)",
    "by_num": "USING INTEGER PRIMARY KEY (rowid=?)",
    "queues": "SEARCH taskharbor_jobs USING INDEX taskharbor_jobs_unknown (queue=?)",
    "extend": "USING INDEX taskharbor_jobs_id (id=?)",
    "known_ids": "USING COVERING INDEX taskharbor_jobs_id (id=?)",
    "known_key": "USING INDEX taskharbor_jobs_key (queue=? AND idempotency_key=?)",
    "prunable": "taskharbor_jobs_ended (state=? AND queue=? AND keep_for=? AND finished_at>? AND finished_at<?)",
    "kept": "USING INDEX taskharbor_jobs_kept (state=? AND queue=? AND <expr>>? AND <expr><?)",
    "heads_line": "USING INDEX taskharbor_jobs_line (queue=? AND grp=? AND rank=?)",
    "heads_due": "USING INDEX taskharbor_jobs_when (state=? AND queue=? AND moment>? AND moment<?)",
    "heads_ready": "USING INDEX taskharbor_jobs_line (queue=? AND grp=?)",
    "heads_turns": "USING INDEX taskharbor_groups_turn (queue=? AND turn>?)",
    "upcoming": "USING COVERING INDEX taskharbor_jobs_when (state=? AND queue=? AND moment>? AND moment<?)",
    "flows": "USING COVERING INDEX taskharbor_jobs_stopped (flow_id=?)",
    "figures": "USING PRIMARY KEY (minute>? AND minute<?)",
    "figures_of_queue": "USING INDEX taskharbor_figures_queue (queue=? AND minute>? AND minute<?)",
    "old_figures": "USING PRIMARY KEY (minute<?)",
    "audit": "USING INDEX taskharbor_audit_at (at>? AND (at,id)<(?,?))",
    "old_audit": "USING COVERING INDEX taskharbor_audit_at (at<?)",
    "schedule": "USING INDEX sqlite_autoindex_taskharbor_schedules_1 (name=?)",
    "schedule_revision": "USING INDEX sqlite_autoindex_taskharbor_schedules_1 (name=?)",
    "schedules": "USING INDEX sqlite_autoindex_taskharbor_schedules_1 (name>?)",
    "schedules_of_queue": "USING INDEX taskharbor_schedules_queue (queue=? AND name>?)",
    "due_queues": "USING COVERING INDEX taskharbor_schedules_due (queue=? AND (next_at,name)>(?,?) AND next_at<?)",
    "due_places": "USING COVERING INDEX taskharbor_schedules_due (queue=? AND (next_at,name)>(?,?) AND next_at<?)",
    "close_edges": "USING PRIMARY KEY (dependency=?)",
    "released": "USING COVERING INDEX taskharbor_edges_dependent (dependent=? AND open=?)",
    "waiting_for": "USING COVERING INDEX taskharbor_edges_dependent (dependent=? AND open=?)",
}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_is_the_intended_one(fast_sqlite_folder, name):
    async def scenario():
        driver = SqliteDriver(f"sqlite:///{fast_sqlite_folder}/plan.db?synchronous=normal")
        await driver.open()
        text = statements.statement(name)
        given = dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * text.count("?")
        rows = await driver.database.read(
            lambda session: session.execute(f"EXPLAIN QUERY PLAN {text}", given).fetchall()
        )
        await driver.close()
        return " / ".join(row[3] for row in rows)

    plan = asyncio.run(scenario())
    assert PLANS[name] in plan, plan
    assert "SCAN taskharbor" not in plan.replace("SCAN taskharbor_meta", "")  # it has one row
    assert "TEMP B-TREE" not in plan


MEMBERS = 10_000
ASKED = 20  # members whose outcomes are measured, each in a call of its own
PAGE = 4096


def moved():
    """Bytes that this process has read and written with system calls, whatever cache of the system served them."""
    with open("/proc/self/io", encoding="ascii") as file:
        counters = dict(line.split(": ") for line in file)
    return int(counters["rchar"]) + int(counters["wchar"])


async def settled(path, size, analyze):
    """What the outcome of a member costs on average: hundreds of steps, and bytes where no page is kept in memory.
    Half of the members of each group are done, the rest is open."""
    driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
    await driver.open()
    for start in range(0, MEMBERS, size):
        ids = [f"01234567-89ab-cdef-0123-{number:012}" for number in range(start, start + size)]
        final = JobRecord(id=f"final-{start}", type="t", queue="final", depends_on=tuple(ids), flow_id=f"flow-{start}")
        members = [JobRecord(id=id, type="t", queue="a", flow_id=final.flow_id) for id in ids]
        await driver.enqueue([*members, final], NOW)
    held = await driver.reserve(["a"], NOW, LEASE, MEMBERS, "w")
    assert len(held) == MEMBERS
    first = [item.lease for number, item in enumerate(held) if number % size < size // 2]
    last = [item.lease for number, item in enumerate(held) if number % size >= size // 2]
    assert not any(await driver.settle([Ack(lease, b"1") for lease in first], NOW))
    if analyze:
        await driver.database.write(lambda session: session.all("ANALYZE"))
    await driver.database.write(lambda session: session.all("PRAGMA cache_size = 1"))
    steps, began = 0, moved()
    for lease in last[::5][:ASKED]:  # of groups of ten, one each: no job is released
        taken, answers = await Meter(driver).of(driver.settle([Ack(lease, b"1")], NOW))
        assert answers == [None]
        steps += taken
    cost = steps / ASKED, (moved() - began) / ASKED
    await driver.close()
    path.unlink()
    return cost


@pytest.mark.left_to("full")
@pytest.mark.parametrize("analyze", [False, True])
def test_settling_a_member_costs_the_same_in_a_group_of_ten_or_ten_thousand(fast_sqlite_folder, analyze):
    steps, moves = asyncio.run(settled(fast_sqlite_folder / f"few-{analyze}.db", 10, analyze))
    large_steps, large_moves = asyncio.run(settled(fast_sqlite_folder / f"many-{analyze}.db", MEMBERS, analyze))
    assert large_steps <= steps + 2, f"{large_steps} hundred steps, {steps} in a group of ten"
    assert large_moves <= moves + 10 * PAGE, f"{large_moves} bytes, {moves} in a group of ten"


def test_a_transaction_that_stores_one_job_writes_four_pages(fast_sqlite_folder):
    """Its row, its id, its place in line, and its queue's row. A hand-written table with an index writes two."""
    path = fast_sqlite_folder / "one.db"

    async def scenario():
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        sizes = []
        for number in range(30):
            await driver.enqueue([JobRecord(id=f"job-{number:06}", type="t")], NOW)
            sizes.append(path.with_name("one.db-wal").stat().st_size)
        await driver.close()
        return [(after - before) // PAGE for before, after in itertools.pairwise(sizes)]

    pages = asyncio.run(scenario())
    assert statistics.median(pages) == 4, pages  # now and then a page is full, and its rows are divided
