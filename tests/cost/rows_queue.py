"""Enqueueing and reserving."""

from datetime import timedelta

from taskharbor.drivers import Ack, Lease, Retry
from taskharbor.model.times import from_ms
from tests import lanes
from tests.cost.meter import MANY, START, Row, Store

FALLEN = lanes.figure(test=10_000, full=100_000)  # due, or expired
SLICES = 1_000  # more than the calls of a row reserve: a smaller store would have nothing left for some
DUE = START + 60_000
QUEUES = [f"q{number}" for number in range(1000)]


async def backlog(store: Store, size: int) -> None:
    await store.put(size)
    store.later()


async def backlog_of_a_clock_that_is_ahead(store: Store, size: int) -> None:
    await store.put(size, now=store.later(1000))
    store.ms -= 1000


async def due(store: Store, size: int) -> None:
    """Between ready jobs that came before and a clock that is past them."""
    await store.put(1000)
    await store.put(size, run_at=from_ms(DUE))
    store.ms = DUE + 1


async def expired(store: Store, size: int) -> None:
    await store.put(size)
    while await store.take(1000, lease=timedelta(seconds=60)):
        pass
    await store.put(1000)
    store.ms = DUE + 1


async def due_in_full_groups(store: Store, size: int) -> None:
    """One of each group is leased, the others become due: no worker can have them."""
    for group in ("a", "b", "c"):
        await store.put(size // 3, run_at=from_ms(DUE), group=group)
        await store.put(1, group=group)
        await store.take(1, lease=timedelta(days=1))
    await store.put(1000)
    store.ms = DUE + 1


async def many_queues(store: Store, size: int) -> None:
    """`size` jobs in queues that the call does not name, and a few in those that it does."""
    for number in range(max(1, size // 20)):
        await store.put(20, queue=f"other{number}")
    for queue in QUEUES[::100]:
        await store.put(50, queue=queue)


async def groups(store: Store, size: int) -> None:
    """With one job each; and a few large ones."""
    for first in range(0, size, 1000):
        made = [job for number in range(first, min(first + 1000, size)) for job in store.jobs(1, group=f"g{number}")]
        await store.driver.enqueue(made, store.now)


async def priorities(store: Store, size: int) -> None:
    await store.put(size // 2, priority=1)
    await store.put(size // 2, priority=-1)


async def enqueue(store: Store) -> None:
    await store.driver.enqueue(store.jobs(100), store.later())


async def enqueue_at_once(store: Store) -> None:
    """Without time going on: a clock that is behind stays so."""
    await store.driver.enqueue(store.jobs(100), store.now)


async def reserve(store: Store) -> None:
    store.later()
    assert len(await store.take(10)) == 10


async def reserve_and_ack(store: Store) -> None:
    store.later()
    taken = await store.take(10)
    assert await store.driver.settle([Ack(held.lease) for held in taken], store.now) == [None] * 10


async def reserve_over_queues(store: Store) -> None:
    store.later()
    assert len(await store.take(10, QUEUES)) == 10


async def reserve_over_empty_queues(store: Store) -> None:
    store.later()
    assert await store.take(10, [f"empty{number}" for number in range(1000)]) == []


async def backlog_and_a_group(store: Store, size: int) -> None:
    await backlog(store, size)
    await store.put(20, queue="grouped", group="g")
    assert len(await store.take(1, ["grouped"])) == 1


async def lose_the_record_and_reserve(store: Store) -> None:
    """Of the job that has the only place of its group; when its lease is over the next one runs."""
    (holder,) = store.client.zrange("{grouped}:active", 0, -1)
    store.client.delete(b"{grouped}:job:" + holder)
    store.later(60_000)
    assert len(await store.take(10, ["grouped"])) == 1


async def hold(store: Store) -> None:
    store.leases = [held.lease for held in await store.take(60, lease=timedelta(days=1))]


async def retry(store: Store) -> None:
    mine: list[Lease] = [store.leases.pop() for _ in range(10)]
    assert await store.driver.settle([Retry(lease, None, 1) for lease in mine], store.later()) == [None] * 10


ROWS = [
    Row("`enqueue` of 100", backlog, enqueue),
    Row("`enqueue` of 100, by a clock that is behind", backlog_of_a_clock_that_is_ahead, enqueue_at_once),
    Row("`enqueue` of 100, after others fell due", due, enqueue, SLICES, FALLEN),
    Row("`enqueue` of 100, after leases ended", expired, enqueue, SLICES, FALLEN),
    Row("`reserve` of 10", backlog, reserve),
    Row("`reserve` of 10 and their acks", backlog, reserve_and_ack),
    Row("`reserve` of 10, after others fell due", due, reserve, SLICES, FALLEN),
    Row("`reserve` of 10, after leases ended", expired, reserve, SLICES, FALLEN),
    Row("`reserve` of 10, after others fell due in full groups", due_in_full_groups, reserve, 3 * SLICES, FALLEN),
    Row("`reserve` of 10, among groups", groups, reserve, SLICES, lanes.figure(test=3_000, full=100_000)),
    Row("`reserve` of 10, by priority", priorities, reserve, 200, lanes.figure(test=5_000, full=200_000)),
    Row("`reserve` of 10 from 1,000 queues", many_queues, reserve_over_queues, 100, min(MANY, 200_000)),
    # Five thousand keys are looked up: what that costs a processor's cache is not measured here.
    Row(
        "`reserve` from 1,000 empty queues",
        backlog,
        reserve_over_empty_queues,
        lanes.figure(test=100, full=100_000),
        lanes.figure(test=5_000, full=MANY),
    ),
    Row("`reserve` of 1, after the record of a leased job is gone", backlog_and_a_group, lose_the_record_and_reserve),
    Row("10 retries", backlog, retry, warm=hold),
    Row("10 retries, after others fell due", due, retry, SLICES, FALLEN, warm=hold),
]
