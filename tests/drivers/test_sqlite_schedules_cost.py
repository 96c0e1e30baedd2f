"""What schedules cost beside ten thousand of them: statements, and steps of SQLite's machine, counted one by one."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from taskharbor.drivers import JobRecord, ScheduleChange, StoredSchedule
from taskharbor.drivers.cursor import encode_due, encode_schedule
from taskharbor.drivers.sqlite import SqliteDriver
from tests.drivers.sqlite_files import LEASE, NOW, fast_folder
from tests.drivers.test_sqlite_cost import MICROS

pytestmark = pytest.mark.lane("sqlite")
fast_sqlite_folder = fast_folder
FEW, MANY = 600, 10_000  # even a few are more than one look takes from a queue
HOUR = timedelta(hours=1)
# Their queue; whether they are due, at two moments, or from an hour later on.
FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO taskharbor_schedules (name, queue, revision, next_at, body)
SELECT CAST(printf('%s-%06d', :queue, i) AS BLOB), :queue, 'r' || i,
    CASE WHEN :due THEN :now - i % 2 ELSE :now + 3600000000 + i END, zeroblob(200)
FROM n
"""


class Cost(NamedTuple):
    statements: int
    steps: int


class Counter:
    """Counts what a connection does."""

    def __init__(self, owner: Any) -> None:
        self._connection = owner.file.get()

    async def of(self, call: Awaitable[Any]) -> tuple[Cost, Any]:
        steps, told = 0, list[str]()

        def step() -> None:
            nonlocal steps
            steps += 1

        self._connection.set_progress_handler(step, 1)
        self._connection.set_trace_callback(told.append)
        answer = await call
        self._connection.set_progress_handler(None, 1)
        self._connection.set_trace_callback(None)
        return Cost(len([text for text in told if "taskharbor_" in text]), steps), answer


async def fill(driver: SqliteDriver, count: int, queue: str) -> None:
    given = {"count": count, "queue": queue, "due": queue == "due", "now": MICROS}
    await driver.database.write(lambda session: session.execute(FILL, given).fetchall())


async def measured(driver: SqliteDriver, count: int, analyze: bool) -> dict[str, Cost]:
    """The queue `later` has schedules that are due later, `due` some that are due now, `idle` none."""
    for queue in ("later", "due"):
        await fill(driver, count, queue)
    if analyze:
        await driver.database.write(lambda session: session.all("ANALYZE"))
    reads, writes = Counter(driver.database.reader), Counter(driver.database.writer)
    cost = {}
    cost["due: nothing"], page = await reads.of(driver.due_schedules(["later"], NOW))
    assert (page.items, page.cursor, page.upcoming) == ((), None, NOW + HOUR + timedelta(microseconds=1))
    cost["due: nothing, and others have many"], page = await reads.of(driver.due_schedules(["idle"], NOW))
    assert (page.items, page.cursor, page.upcoming) == ((), None, None)
    cost["due: ten"], page = await reads.of(driver.due_schedules(["later", "due", "idle"], NOW, limit=10))
    assert [row.name for row in page.items[:2]] == ["due-000001", "due-000003"]
    middle = count // 2 + 1
    cursor = encode_due(NOW - timedelta(microseconds=1), f"due-{middle:06}")
    cost["due: ten from the middle"], page = await reads.of(
        driver.due_schedules(["later", "due"], NOW, limit=10, cursor=cursor)
    )
    assert page.items[0].name == f"due-{middle + 2:06}"
    cost["all"], page = await reads.of(driver.schedules(limit=10))
    cost["from the middle"], page = await reads.of(
        driver.schedules(limit=10, cursor=encode_schedule(f"due-{middle:06}"))
    )
    assert page.items[0].name == f"due-{middle + 1:06}"
    cost["of the last queue"], page = await reads.of(driver.schedules(queue="later", limit=10))
    assert page.items[0].name == "later-000001"
    cost["of a queue without any"], page = await reads.of(driver.schedules(queue="idle", limit=10))
    assert page.items == ()
    cost["by name"], page = await reads.of(driver.schedules(names=["due-000007", "later-000007", "none"]))
    assert len(page.items) == 2
    await measure_changes(driver, writes, cost)
    return cost


async def measure_changes(driver: SqliteDriver, writes: Counter, cost: dict[str, Cost]) -> None:
    def changed(name: str, expect: str | None, queue: str | None, *jobs: str) -> Awaitable[list[bool]]:
        to = None
        if queue is not None:
            to = StoredSchedule(name=name, queue=queue, revision="new", next_at=NOW + HOUR, body=b"body")
        stored = tuple(JobRecord(id=id, type="t", queue=queue or "") for id in jobs)
        return driver.change_schedules([ScheduleChange(name=name, expect=expect, to=to, jobs=stored)], NOW)

    for what, call in {
        "added": changed("due-new", None, "due"),
        "fired": changed("due-000007", "r7", "due", "job"),
        "fired before": changed("due-000007", "r7", "due", "job"),
        "refused": changed("due-000009", "r7", "due"),
        "moved": changed("due-000011", "r11", "later"),
        "deleted": changed("due-000013", "r13", None),
    }.items():
        cost[what], answer = await writes.of(call)
        assert answer == [what != "refused"]


@pytest.mark.parametrize("analyze", [False, True])
def test_every_call_costs_the_same_beside_ten_thousand_schedules(fast_sqlite_folder, analyze):
    """Looks, pages and changes read what they need by an index: not one step more than beside a few."""

    async def scenario(count: int) -> dict[str, Cost]:
        path = fast_sqlite_folder / f"schedules-{count}-{analyze}.db"
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        cost = await measured(driver, count, analyze)
        await driver.close()
        path.unlink()
        return cost

    small, large = asyncio.run(scenario(FEW)), asyncio.run(scenario(MANY))
    assert large == small
    assert large["due: nothing"].statements == large["due: nothing, and others have many"].statements == 1


def test_a_look_takes_one_statement_and_two_lookups_for_each_queue(fast_sqlite_folder):
    path = fast_sqlite_folder / "schedules-queues.db"

    async def scenario() -> list[Cost]:
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        await fill(driver, MANY, "q1")
        reads = Counter(driver.database.reader)
        spent = [
            (await reads.of(driver.due_schedules([f"q{n}" for n in range(number)], NOW)))[0] for number in (10, 20, 30)
        ]
        await driver.close()
        path.unlink()
        return spent

    first, second, third = asyncio.run(scenario())
    assert first.statements == second.statements == third.statements == 1
    assert third.steps - second.steps == second.steps - first.steps < 10 * 60


def test_reserve_and_enqueue_do_not_look_at_schedules(fast_sqlite_folder):
    path = fast_sqlite_folder / "schedules-beside.db"

    async def scenario() -> list[str]:
        driver = SqliteDriver(f"sqlite:///{path}?synchronous=normal")
        await driver.open()
        told = list[str]()
        driver.database.writer.file.get().set_trace_callback(told.append)
        await driver.enqueue([JobRecord(id="a", type="t")], NOW)
        (held,) = await driver.reserve(["default"], NOW, LEASE, 1, "w")
        await driver.ack(held.lease, NOW)
        await driver.delete(["a"])
        await driver.close()
        return told

    told = asyncio.run(scenario())
    assert [text for text in told if "taskharbor_jobs" in text]
    assert not [text for text in told if "taskharbor_schedules" in text]
