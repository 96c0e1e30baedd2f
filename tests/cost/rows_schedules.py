"""Schedules: rows that are not due, and rows of other queues, cost nothing."""

from datetime import datetime, timedelta

from taskharbor.drivers import ScheduleChange, StoredSchedule
from tests import lanes
from tests.cost.meter import Row, Store

SCHEDULES = lanes.figure(test=4_000, full=10_000)
QUEUES = [f"q{number}" for number in range(1000)]
HOUR = timedelta(hours=1)


def row(number: int, queue: str, next_at: datetime, version: int = 0) -> StoredSchedule:
    return StoredSchedule(
        name=f"s{number:06}", queue=queue, revision=f"{number}-{version}", next_at=next_at, body=b"x" * 300
    )


async def put(store: Store, rows: list[StoredSchedule]) -> None:
    changes = [ScheduleChange(name=one.name, expect=None, to=one) for one in rows]
    assert all(await store.driver.change_schedules(changes, store.now))


async def none_due(store: Store, size: int) -> None:
    """`size` schedules in a thousand queues."""
    await put(store, [row(number, QUEUES[number % 1000], store.now + HOUR) for number in range(size)])


async def look(store: Store) -> None:
    page = await store.driver.due_schedules(QUEUES, store.now)
    assert (page.items, page.upcoming) == ((), store.now + HOUR)


async def due_elsewhere(store: Store, size: int) -> None:
    """`size` due schedules in a queue, and ten that are not due in another."""
    await put(store, [row(number, "busy", store.now) for number in range(10, size)])
    await put(store, [row(number, "mine", store.now + HOUR) for number in range(10)])


async def look_at_mine(store: Store) -> None:
    page = await store.driver.due_schedules(["mine"], store.now)
    assert (page.items, page.upcoming) == ((), store.now + HOUR)


async def page_of_due(store: Store) -> None:
    page = await store.driver.due_schedules(["busy", "mine"], store.now)
    assert (len(page.items), page.upcoming) == (100, store.now + HOUR)


async def fire(store: Store) -> None:
    """The first ten, each with a job."""
    page = await store.driver.due_schedules(["busy"], store.now, limit=10)
    store.made += 1
    changes = [
        ScheduleChange(
            name=one.name,
            expect=one.revision,
            to=row(int(one.name[1:]), "busy", store.now - HOUR, store.made),
            jobs=tuple(store.jobs(1, queue="busy", run_at=store.now)),
        )
        for one in page.items
    ]
    assert await store.driver.change_schedules(changes, store.later()) == [True] * 10


async def come_and_go(store: Store) -> None:
    """Ten new ones, which are deleted again; in between they move."""
    store.made += 1
    rows = [row(900_000 + number, "busy", store.now, store.made) for number in range(10)]
    moved = [row(900_000 + number, "mine", store.now + HOUR, store.made + 1) for number in range(10)]
    await put(store, rows)
    for number, old in enumerate([*rows, *moved]):
        new = moved[number] if number < len(rows) else None
        change = ScheduleChange(name=old.name, expect=old.revision, to=new)
        assert await store.driver.change_schedules([change], store.now) == [True]
    store.made += 1


async def page_by_name(store: Store) -> None:
    assert len((await store.driver.schedules(limit=100)).items) == 100


async def page_of_a_queue(store: Store) -> None:
    assert len((await store.driver.schedules(queue="mine", limit=100)).items) == 10


ROWS = [
    Row("`due_schedules` of 1,000 queues, none due", none_due, look, small=1000, large=SCHEDULES, times=2),
    Row("`due_schedules` of one queue, none due there", due_elsewhere, look_at_mine, large=SCHEDULES, times=2),
    Row("`due_schedules`, 100 of them", due_elsewhere, page_of_due, small=200, large=SCHEDULES, times=2),
    Row("`change_schedules` of 10, with a job each", due_elsewhere, fire, large=SCHEDULES, times=2),
    Row("`change_schedules` that add, move and delete 10", due_elsewhere, come_and_go, large=SCHEDULES, times=2),
    Row("`schedules`, 100 of them", due_elsewhere, page_by_name, small=200, large=SCHEDULES, times=2),
    Row("`schedules` of one queue", due_elsewhere, page_of_a_queue, large=SCHEDULES, times=2),
]
