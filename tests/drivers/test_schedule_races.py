"""Many clients on the same schedules, on every store: each slot becomes one job, whatever the clients do.

They run in several threads, each with drivers of its own. Their jobs have ids of their own, so that only the comparison
of revisions keeps a slot from being fired twice. Now and then a client sends a change again, as after a lost reply.
"""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from taskharbor.conformance.environment import opened
from taskharbor.drivers import BackendUnavailable, Driver, JobRecord, ScheduleChange, StoredSchedule, open_driver
from tests import lanes
from tests.drivers.head_stores import PLACES, on_every_store

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CLIENTS = lanes.figure(test=8, full=64)
SLOTS = lanes.figure(test=40, full=200)
SCHEDULES_STORED = lanes.figure(test=400, full=10_000)
QUEUES = [f"q{number}" for number in range(5)]
THREADS = 4
TRIES = 100


pytestmark = [pytest.mark.timeout(3600), on_every_store]


@pytest.fixture
def dsn(place: str, tmp_path: Path) -> str:
    """An empty store."""
    return PLACES[place].empty(tmp_path)


class Client:
    """One of them."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.name = driver, name
        self.chances = random.Random(f"{lanes.seed()}/{name}")
        self.fired = Counter[bool]()

    async def change(self, change: ScheduleChange) -> bool:
        """Now and then it is sent twice. Before it the others get a turn, also on a store where no call waits."""
        for _ in range(self.chances.randrange(4)):
            await asyncio.sleep(0)
        happened = await self._send(change)
        if self.chances.random() < 0.2:
            again = await self._send(change)
            assert happened or not again, "a change that was refused happened when it was sent again"
        self.fired[happened] += 1
        return happened

    async def _send(self, change: ScheduleChange) -> bool:
        for _ in range(TRIES):
            try:
                (happened,) = await self.driver.change_schedules([change], NOW)
            except BackendUnavailable:
                continue
            return happened
        raise AssertionError(f"the store was not available {TRIES} times in a row")

    async def fire(self, row: StoredSchedule, next_at: datetime | None) -> bool:
        """Make the job of its slot, and move the row on."""
        slot = int(row.body)
        new = StoredSchedule(
            name=row.name,
            queue=row.queue,
            revision=f"{row.name} {slot + 1} {self.name}",
            next_at=next_at,
            body=b"%d" % (slot + 1),
        )
        job = JobRecord(id=f"{row.name}-{slot:04d}-{self.name}", type="t", queue=row.queue, run_at=row.next_at)
        return await self.change(ScheduleChange(name=row.name, expect=row.revision, to=new, jobs=(job,)))


def race(dsn: str, live: Callable[[Client], Awaitable[None]]) -> Counter[bool]:
    """All clients at once; how many of their changes happened, and how many did not."""
    errors, fired, guard = list[BaseException](), Counter[bool](), threading.Lock()
    begun = threading.Barrier(THREADS)

    async def crowd(thread: int) -> None:
        async with AsyncExitStack() as stack:
            names = [f"{number:02d}" for number in range(thread, CLIENTS, THREADS)]
            drivers = [await stack.enter_async_context(opened(open_driver(dsn))) for _ in names]
            clients = [Client(driver, name) for driver, name in zip(drivers, names, strict=True)]
            begun.wait()
            await asyncio.gather(*map(live, clients))
            with guard:
                for client in clients:
                    fired.update(client.fired)

    def run(thread: int) -> None:
        try:
            asyncio.run(crowd(thread))
        except BaseException as error:
            errors.append(error)
            begun.abort()  # otherwise the others would wait for it

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return fired


def prepared(dsn: str, rows: list[StoredSchedule]) -> None:
    async def put(driver: Any) -> None:
        for start in range(0, len(rows), 500):
            changes = [ScheduleChange(name=row.name, expect=None, to=row) for row in rows[start : start + 500]]
            assert await driver.change_schedules(changes, NOW) == [True] * len(changes)

    _with_driver(dsn, put)


def stored(dsn: str) -> tuple[list[StoredSchedule], list[str]]:
    """All schedules, and the ids of all jobs."""

    async def read(driver: Any) -> tuple[list[StoredSchedule], list[str]]:
        rows, ids = list[StoredSchedule](), list[str]()
        page = await driver.schedules(limit=1_000)
        rows += page.items
        while page.cursor is not None:
            page = await driver.schedules(limit=1_000, cursor=page.cursor)
            rows += page.items
        for queue in QUEUES:
            listed = await driver.list(now=NOW, queue=queue, limit=1_000)
            ids += [info.job.id for info in listed.items]
            while listed.cursor is not None:
                listed = await driver.list(now=NOW, queue=queue, limit=1_000, cursor=listed.cursor)
                ids += [info.job.id for info in listed.items]
        return rows, ids

    return cast(tuple[list[StoredSchedule], list[str]], _with_driver(dsn, read))


def _with_driver(dsn: str, story: Callable[[Any], Awaitable[Any]]) -> Any:
    async def live() -> Any:
        async with opened(open_driver(dsn)) as driver:
            return await story(driver)

    return asyncio.run(live())


def test_one_job_for_each_slot(dsn):
    prepared(dsn, [StoredSchedule(name="s", queue=QUEUES[0], revision="s", next_at=NOW, body=b"0")])

    async def live(client: Client) -> None:
        while rows := (await client.driver.due_schedules(QUEUES, NOW)).items:
            await client.fire(rows[0], NOW if int(rows[0].body) + 1 < SLOTS else None)

    fired = race(dsn, live)
    (row,), ids = stored(dsn)
    assert (row.body, row.next_at) == (b"%d" % SLOTS, None)
    assert sorted(id.split("-")[1] for id in ids) == [f"{slot:04d}" for slot in range(SLOTS)]
    assert fired[False] > 0, "the clients never met"


def test_one_job_for_each_of_many_schedules(dsn):
    """Half of them are due. Each client takes those of a page in any order, and another page once it meets others."""
    rows = [
        StoredSchedule(
            name=f"s{number:05d}",
            queue=QUEUES[number % 5],
            revision=f"s{number:05d}",
            next_at=NOW + timedelta(milliseconds=number - SCHEDULES_STORED // 2),
            body=b"0",
        )
        for number in range(SCHEDULES_STORED)
    ]
    due = [row for row in rows if row.next_at is not None and row.next_at <= NOW]
    prepared(dsn, rows)

    async def live(client: Client) -> None:
        queues = client.chances.sample(QUEUES, 5)
        while (page := await client.driver.due_schedules(queues, NOW, limit=50)).items:
            assert page.upcoming == NOW + timedelta(milliseconds=1)
            for row in client.chances.sample(page.items, len(page.items)):
                if not await client.fire(row, NOW + timedelta(hours=1)):
                    break

    race(dsn, live)
    left, ids = stored(dsn)
    assert sorted(id.split("-")[0] for id in ids) == [row.name for row in due]
    assert [row.name for row in left] == [row.name for row in rows]
    assert [row for row in left if row.body == b"0"] == [row for row in rows if row not in due]


def test_one_of_many_that_add_a_name(dsn):
    """Each in the queue that it likes: the row is in one of them, and so is its job."""
    names = [f"s{number:04d}" for number in range(SLOTS)]

    async def live(client: Client) -> None:
        for name in names:
            queue = client.chances.choice(QUEUES)
            row = StoredSchedule(name=name, queue=queue, revision=f"{name} {client.name}", next_at=NOW, body=b"0")
            job = JobRecord(id=f"{name}-{client.name}-{queue}", type="t", queue=queue)
            await client.change(ScheduleChange(name=name, expect=None, to=row, jobs=(job,)))

    race(dsn, live)
    rows, ids = stored(dsn)
    assert [row.name for row in rows] == names
    assert sorted(ids) == [f"{row.name}-{row.revision.split()[1]}-{row.queue}" for row in rows]
