"""What schemas 2 and 3 added, as far as it is a matter of this store: where listings look, what figures cost, trails in
the transactions of handlers, damaged entries of the audit, and blocking calls of operators."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import Ack, Amend, BackendUnavailable, Cancelled, Fail, Figures, Retry
from taskharbor.drivers.sqlite import SqliteDriver, admin, listing, reading
from taskharbor.model.audit import AUDIT_KEPT_FOR, StoredAudit
from taskharbor.model.job import Seen, State
from tests.drivers.blocking_calls import run
from tests.drivers.sqlite_files import LEASE, NOW, damage, damage_field, job, opened, opened_driver

pytestmark = pytest.mark.lane("sqlite")
driver = opened_driver
MINUTE = timedelta(minutes=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


async def in_every_state(driver: SqliteDriver) -> dict[str, list[str]]:
    """Three jobs in each state, mixed in the order of their ids; returns them by state."""
    states = ("done", "dlq", "cancelled", "inflight", "ready", "scheduled", "blocked")
    ids = {state: [f"{n}-{state}" for n in range(3)] for state in states}
    settled = [job(id) for state in ("done", "dlq", "cancelled", "inflight") for id in ids[state]]
    await driver.enqueue(settled, NOW)
    held = {item.job.id: item.lease for item in await driver.reserve(["default"], NOW, LEASE, 20, "w")}
    await driver.settle([Ack(held[id]) for id in ids["done"]], NOW)
    await driver.settle([Fail(held[id], "no", 1, NOW, "", (), "E", "p") for id in ids["dlq"]], NOW)
    await driver.settle([Cancelled(held[id], "no") for id in ids["cancelled"]], NOW)
    await driver.enqueue([job(id) for id in ids["ready"]], NOW)
    await driver.enqueue([job(id, run_at=NOW + LEASE) for id in ids["scheduled"]], NOW)
    await driver.enqueue([job(id, depends_on=(ids["ready"][0],)) for id in ids["blocked"]], NOW)
    return ids


async def pages(driver: SqliteDriver, **wanted: Any) -> list[list[str]]:
    """The ids of every page of a listing."""
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = await driver.list(now=NOW, cursor=cursor, **wanted)
        found.append([item.job.id for item in page.items])
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("state", [str(state) for state in State])
@pytest.mark.parametrize("order", ["id", "-id"])
async def test_a_listing_by_state_has_every_job_once_in_order(driver, state, order):
    ids = (await in_every_state(driver))[state]
    expected = ids if order == "id" else ids[::-1]
    assert await pages(driver, state=state, order=order, limit=2) == [expected[:2], expected[2:]]
    assert await pages(driver, state=state, order=order, limit=3) == [expected]


@pytest.mark.parametrize("state", ["inflight", "ready"])
async def test_beside_many_ready_or_inflight_jobs_all_are_read_by_id(path, state, monkeypatch):
    monkeypatch.setattr(listing, "MAX_SORTED_JOBS", 2)
    async with opened(path) as driver:
        ids = await in_every_state(driver)
        assert await pages(driver, state=state, limit=2) == [ids[state][:2], ids[state][2:]]


async def test_a_backlog_is_listed_at_once_behind_many_jobs_that_have_ended(path, monkeypatch):
    monkeypatch.setattr(listing, "MAX_SCANNED_JOBS", 5)
    async with opened(path) as driver:
        ended = [f"a{n}" for n in range(8)]
        await driver.enqueue([job(id) for id in ended], NOW)
        await driver.cancel(ended, NOW)
        await driver.enqueue([job(f"z{n:04}") for n in range(1_200)], NOW)
        page = await driver.list(state="ready", now=NOW, limit=3)
        assert [item.job.id for item in page.items] == ["z0000", "z0001", "z0002"]


async def test_a_listing_stops_after_some_jobs_and_goes_on_there(path, monkeypatch):
    monkeypatch.setattr(listing, "MAX_SCANNED_JOBS", 5)
    async with opened(path) as driver:
        await driver.enqueue([job(f"{n:02}", queue="b" if n in (3, 11) else "a") for n in range(13)], NOW)
        assert await pages(driver, queue="b", limit=2) == [["03"], [], ["11"]]
        assert await pages(driver, queue="b", limit=1, order="-id") == [["11"], ["03"], []]
        assert await pages(driver, queue="none", limit=2) == [[], [], []]


async def test_a_listing_of_the_dead_has_those_in_an_unknown_state(driver, path):
    ids = await in_every_state(driver)
    damage(str(path), "1-ready", "state")
    assert damage_field(str(path), "1-done", "state", "missing")
    expected = sorted([*ids["dlq"], "1-ready", "1-done"])
    assert await pages(driver, state="dlq", limit=2) == [expected[:2], expected[2:4], expected[4:]]
    assert await pages(driver, state="dlq", order="-id") == [expected[::-1]]


@pytest.mark.parametrize(("state", "kind"), [("4", "failed"), ("-1", "failed"), ("NULL", "failed"), ("5", "cancelled")])
async def test_a_flow_is_dead_with_any_member_that_reads_so(driver, state, kind):
    await driver.enqueue([job(f"{n}", flow_id="f") for n in range(3)], NOW)
    await driver.database.write(
        lambda session: session.all(f"UPDATE taskharbor_jobs SET state = {state} WHERE id = '1'")
    )
    (flow,) = (await driver.flows(now=NOW)).items
    assert flow.status == kind == (await driver.flow("f", NOW)).status
    return flow


async def test_a_listing_of_flows_stops_after_some_and_goes_on_there(path, monkeypatch):
    monkeypatch.setattr(listing, "MAX_SCANNED_FLOWS", 3)
    async with opened(path) as driver:
        await driver.enqueue([job(f"{n}", flow_id=f"f{n}") for n in range(7)], NOW)
        await driver.cancel_flow("f4", NOW)
        found, cursor = [], None
        while True:
            page = await driver.flows(now=NOW, status="cancelled", cursor=cursor)
            found.append([flow.id for flow in page.items])
            cursor = page.cursor
            if cursor is None:
                break
        assert found == [[], ["f4"], []]


async def test_figures_are_forgotten_some_at_a_time(path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_FORGOTTEN_FIGURES", 3)
    async with opened(path) as driver:
        rows = [Figures(NOW + n * MINUTE, "q", {"done": 1, "failed": 2}) for n in range(4)]
        await driver.add_figures(rows, NOW)
        late = NOW + timedelta(hours=72) + 4 * MINUTE
        left = []
        for _ in range(4):
            await driver.add_figures([], late)
            left.append(sum(len(row.counts) for row in await driver.figures(NOW, late)))
        assert left == [5, 2, 0, 0]
        assert await driver.queues() == []


async def test_a_damaged_figure_is_left_out(driver):
    await driver.add_figures([Figures(NOW, "q", {"done": 1, "failed": 2})], NOW)
    await driver.database.write(
        lambda session: session.all("UPDATE taskharbor_figures SET number = 'many' WHERE name = 'done'")
    )
    assert await driver.figures(NOW, NOW + MINUTE) == [Figures(NOW, "q", {"failed": 2})]


async def audited(driver: SqliteDriver, number: int) -> list[StoredAudit]:
    """Entries, two of each moment; returns them the newest first."""
    entries = [StoredAudit(id=f"{n:02}", at=NOW + n // 2 * MINUTE, by="anna" if n % 3 else "bo") for n in range(number)]
    await driver.put_audit(entries, NOW)
    return entries[::-1]


async def test_the_audit_is_forgotten_some_at_a_time(path, monkeypatch):
    monkeypatch.setattr(listing, "MAX_FORGOTTEN_AUDIT", 3)
    async with opened(path) as driver:
        entries = await audited(driver, 8)
        left = []
        for _ in range(4):
            await driver.put_audit([], NOW + AUDIT_KEPT_FOR + 3 * MINUTE)
            left.append(list((await driver.audit()).items))
        assert left == [entries[:5], entries[:2], entries[:2], entries[:2]]


async def test_the_audit_stops_after_some_entries_and_goes_on_there(path, monkeypatch):
    monkeypatch.setattr(listing, "MAX_SCANNED_AUDIT", 4)
    async with opened(path) as driver:
        await audited(driver, 10)
        found, cursor = list[list[str]](), None
        while not found or cursor is not None:
            page = await driver.audit(by="bo", cursor=cursor, limit=2)
            found.append([entry.id for entry in page.items])
            cursor = page.cursor
        assert found == [["09", "06"], ["03"], ["00"]]


@pytest.mark.parametrize("column", ["id", "at", "done_by", "data"])
@pytest.mark.parametrize(
    "value", ["'many'", "-1", "1.5", "9e999", "x'fffe'", "CAST(x'fffe' AS TEXT)", f"{2**62}", "''"]
)
async def test_a_damaged_entry_spoils_no_page(path, column, value, monkeypatch):
    """It is left out, or shown if it can be; the others are all there, page by page."""
    monkeypatch.setattr(listing, "MAX_SCANNED_AUDIT", 2)
    async with opened(path) as driver:
        entries = await audited(driver, 9)
        await driver.database.write(
            lambda session: session.all(f"UPDATE taskharbor_audit SET {column} = {value} WHERE id = x'3035'")
        )
        found, cursor = list[tuple[StoredAudit, ...]](), None
        while not found or cursor is not None:
            page = await driver.audit(cursor=cursor, limit=2)
            found.append(page.items)
            cursor = page.cursor
            assert len(found) < 20
        whole = [entry for page in found for entry in page]
        assert [entry for entry in whole if entry in entries] == [entry for entry in entries if entry.id != "05"]
        assert len(whole) <= len(entries)
        await driver.put_audit([], NOW + AUDIT_KEPT_FOR + 10 * MINUTE)
        assert not [entry for entry in (await driver.audit()).items if entry.id != "05"]


@pytest.mark.parametrize("kind", ["missing", "word", "negative", "huge", "fraction"])
@pytest.mark.parametrize("field", ["deliveries", "edits", "finished_at"])
async def test_what_was_seen_of_a_damaged_job_is_what_reading_shows(driver, path, field, kind):
    for verb in ("cancel", "delete"):
        await driver.enqueue([job(verb)], NOW)
        if not damage_field(str(path), verb, field, kind):
            return
        seen = Seen.of(await driver.inspect(verb, NOW))
        given = (NOW,) if verb == "cancel" else ()
        (refused,) = await getattr(driver, verb)([verb], *given, seen=[Seen(7, 7)])
        assert "changed since it was read" in str(refused)
        assert await getattr(driver, verb)([verb], *given, seen=[seen]) == [None]


async def test_the_trail_of_an_ack_is_committed_with_the_transaction_of_its_handler(driver):
    await driver.enqueue([job("a"), job("b")], NOW)
    first, second = await driver.reserve(["default"], NOW, LEASE, 2, "w")
    transaction = driver.transaction(first.lease)
    await transaction.__aenter__()
    assert await transaction.commit(Ack(first.lease, b"1", trail=b"trail"), NOW) is None
    refused = driver.transaction(second.lease)
    await refused.__aenter__()
    assert await refused.commit(Ack(second.lease, b"1", trail=b"x" * 20_000), NOW) is not None
    jobs = [(await driver.inspect(id, NOW)).job for id in ("a", "b")]
    assert [(record.trail, record.result) for record in jobs] == [(b"trail", b"1"), (b"", None)]


async def test_a_job_that_is_kept_for_a_damaged_time_is_pruned_like_others(driver, path):
    await driver.enqueue([job("a", keep_for=timedelta(days=9))], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 2, "w")
    await driver.settle([Ack(held.lease)], NOW)
    damage_field(str(path), "a", "keep_for", "word")
    assert await driver.prune(NOW, 5) == 0
    assert await driver.prune(NOW + LEASE, 5) == 1


async def test_a_lease_that_is_over_is_named_as_the_reason_why_a_job_cannot_be_amended(driver):
    await driver.enqueue([job("a")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 1, "w")
    (error,) = await driver.amend([Amend(id="a", deliveries=1, edits=0, priority=1)], NOW + 2 * LEASE)
    assert str(error).startswith("job a is under a lease; ")


async def test_an_amended_job_is_as_much_lost_as_before(driver):
    """The execution before was lost, and no other came in between."""
    await driver.enqueue([job("a")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 1, "lost")
    assert await driver.release("lost", NOW + MINUTE / 4) == 1
    assert await driver.amend([Amend(id="a", deliveries=1, edits=0, priority=3)], NOW + MINUTE / 3) == [None]
    (held,) = await driver.reserve(["default"], NOW + MINUTE, LEASE, 1, "w")
    assert held.lost_by is not None
    assert (held.lost_by.worker, held.lost_by.ended_at) == ("lost", NOW + MINUTE / 4)


async def test_a_loss_is_over_after_an_outcome(driver):
    await driver.enqueue([job("a")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 1, "lost")
    await driver.release("lost", NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
    assert held.lost_by is not None
    await driver.settle([Retry(held.lease, None, 1)], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
    assert held.lost_by is None
    await driver.release("w", NOW)
    await driver.cancel(["a"], NOW)
    await driver.requeue(["a"], NOW)
    (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
    assert held.lost_by is None


def test_blocking_calls_of_an_operator(path):
    calls = SqliteDriver(f"sqlite:///{path}").blocking()
    try:
        run(calls, lambda driver: driver.open())
        run(calls, lambda driver: driver.enqueue([job("a"), job("b", flow_id="f")], NOW))
        assert run(calls, lambda driver: driver.queues()) == ["default"]
        assert run(calls, lambda driver: driver.counts(NOW, cap=1)) == {"default": {"ready": 1}}
        run(calls, lambda driver: driver.pause("default"))
        assert run(calls, lambda driver: driver.is_paused("default"))
        run(calls, lambda driver: driver.resume("default"))
        change = Amend(id="a", deliveries=0, edits=0, run_at=NOW + LEASE)
        assert run(calls, lambda driver: driver.amend([change], NOW)) == [None]
        assert run(calls, lambda driver: driver.upcoming(["default"], NOW)) == NOW + LEASE
        page = run(calls, lambda driver: driver.list(now=NOW, order="-id", payloads=False, until=NOW + MINUTE))
        assert [item.job.id for item in page.items] == ["b", "a"]
        assert [flow.id for flow in run(calls, lambda driver: driver.flows(now=NOW)).items] == ["f"]
        run(calls, lambda driver: driver.add_figures([Figures(NOW, "q", {"done": 1})], NOW))
        assert len(run(calls, lambda driver: driver.figures(NOW, NOW + MINUTE))) == 1
        seen = [Seen.of(item) for item in page.items]
        assert run(calls, lambda driver: driver.cancel(["b"], NOW, seen=seen[:1])) == [None]
        (refused,) = run(calls, lambda driver: driver.requeue(["b"], NOW, seen=seen[:1]))
        assert "changed since" in str(refused)
        entry = StoredAudit(id="e", at=NOW, by="anna", data=b"x")
        run(calls, lambda driver: driver.put_audit([entry], NOW))
        assert run(calls, lambda driver: driver.audit(by="anna", until=NOW + MINUTE)).items == (entry,)
        assert run(calls, lambda driver: driver.delete(["a", "b"])) == [None, None]
    finally:
        calls.close()


async def test_a_worker_learns_of_an_amended_job_at_once(driver):
    await driver.enqueue([job("a", run_at=NOW + LEASE)], NOW)
    assert await driver.reserve(["default"], NOW, LEASE, 1, "w") == []
    waits = asyncio.ensure_future(driver.wait(["default"], 30.0))
    assert await driver.amend([Amend(id="a", deliveries=0, edits=0, run_at=None)], NOW) == [None]
    assert await waits
    assert [item.job.edits for item in await driver.reserve(["default"], NOW, LEASE, 1, "w")] == [1]


async def test_a_cancel_of_a_flow_that_stops_says_how_far_it_came(driver, monkeypatch):
    monkeypatch.setattr(admin, "MAX_CHANGED_JOBS", 2)
    await driver.enqueue([job(f"{n}", flow_id="f") for n in range(5)], NOW)
    write, writes = driver.database.write, list[str]()

    async def write_twice(work: Any) -> Any:
        writes.append("")
        if len(writes) == 3:
            raise BackendUnavailable("locked")
        return await write(work)

    with monkeypatch.context() as patch:
        patch.setattr(driver.database, "write", write_twice)
        with pytest.raises(BackendUnavailable, match=r"flow f: cancelled 4 job\(s\), then: locked; cancel it again"):
            await driver.cancel_flow("f", NOW)
    await driver.enqueue([job("late", flow_id="f")], NOW)
    assert (await driver.inspect("late", NOW)).state == "cancelled"
    assert (await driver.inspect("4", NOW)).state == "ready"
    assert await driver.cancel_flow("f", NOW) == 1
