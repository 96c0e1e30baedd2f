"""What a call costs, counted in operations and never in time: it must not grow with what is kept beside it.

Counted are the function calls that the interpreter makes during a driver's call, C functions included, and each
comparison of two places in a line.
"""

import asyncio
import random
import sys
from datetime import UTC, datetime, timedelta
from heapq import heappush

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Retry
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.memory.queue import Line
from tests import lanes
from tests.drivers.memory_recount import recount

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
MANY = lanes.figure(test=5_000, full=50_000)
# A thousand times as many jobs are ten levels more in a heap, of at most five operations each for a job. An ack makes
# no more calls, but a few comparisons depend on the tokens, which are random.
MORE_LEVELS = 10 * 5


class ComparedPlace(tuple):
    """A place that counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        ComparedPlace.compared += 1
        return tuple.__lt__(self, other)

    def __eq__(self, other):
        ComparedPlace.compared += 1
        return tuple.__eq__(self, other)

    __hash__ = tuple.__hash__


@pytest.fixture(autouse=True)
def counting_places(monkeypatch):
    def put(self, entry, *place):
        self.places[entry] = ComparedPlace(place)
        heappush(self._heap, (self.places[entry], entry))

    monkeypatch.setattr(Line, "put", put)


def cost(coroutine):
    """The result of a call that awaits nothing, and the number of operations it took."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = ComparedPlace.compared
    sys.setprofile(count)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answer = stop.value
    finally:
        sys.setprofile(None)
    return answer, calls + ComparedPlace.compared - before


def run(coroutine):
    return asyncio.run(coroutine)


def jobs(count, **fields):
    return [JobRecord(**{"id": f"{index:06d}", "type": "t", "created_at": NOW, **fields}) for index in range(count)]


def reserve_and_ack(driver, batch=16):
    """What it takes to reserve and ack a batch, once what only the first call has to do is done."""
    (one,) = run(driver.reserve(["default"], NOW, LEASE, 1))
    run(driver.settle([Ack(one.lease)], NOW))
    reserved, first = cost(driver.reserve(["default"], NOW, LEASE, batch))
    assert len(reserved) == batch
    answers, second = cost(driver.settle([Ack(one.lease) for one in reserved], NOW))
    assert answers == [None] * batch
    return first, second


@pytest.mark.parametrize("fields", [{}, {"group": "g", "group_limit": 50}], ids=["line", "group"])
def test_a_call_costs_the_same_with_any_backlog(fields):
    costs = []
    for size in (50, MANY):
        driver = MemoryDriver()
        run(driver.enqueue(jobs(size, **fields), NOW))
        costs.append(reserve_and_ack(driver))
    (small, small_ack), (large, large_ack) = costs
    assert large - small <= 16 * MORE_LEVELS
    assert large_ack <= small_ack + MORE_LEVELS


def test_backlog_of_many_priorities_grows_with_its_logarithm():
    costs = []
    for size in (50, MANY):
        driver, shuffled = MemoryDriver(), random.Random(size)
        run(
            driver.enqueue(
                [
                    job
                    for number in range(size)
                    for job in [JobRecord(id=f"{number:06d}", type="t", priority=shuffled.randint(0, 9))]
                ],
                NOW,
            )
        )
        costs.append(reserve_and_ack(driver)[0])
    assert costs[1] - costs[0] <= 16 * MORE_LEVELS


def test_a_call_costs_the_same_with_many_groups():
    costs = []
    for groups in (50, MANY // 5):
        driver = MemoryDriver()
        made = [JobRecord(id=f"{index:06d}", type="t", group=f"g{index % groups}") for index in range(MANY)]
        run(driver.enqueue(made, NOW))
        costs.append(reserve_and_ack(driver))
    (few, few_acks), (many, many_acks) = costs
    assert many <= few + 16 * MORE_LEVELS  # no group is visited out of its turn
    assert many_acks <= few_acks + MORE_LEVELS


def kept(kind, size):
    """A driver that keeps many jobs of a kind beside fifty ready ones."""
    driver = MemoryDriver()
    others = [JobRecord(id=f"other-{index}", type="t") for index in range(size)]

    async def make():
        if kind == "scheduled":
            others[:] = [
                JobRecord(id=job.id, type="t", run_at=NOW + timedelta(hours=1, seconds=index))
                for index, job in enumerate(others)
            ]
        elif kind == "blocked":
            await driver.enqueue([JobRecord(id="never", type="t", queue="elsewhere")], NOW)
            others[:] = [JobRecord(id=job.id, type="t", depends_on=("never",)) for job in others]
        await driver.enqueue(others, NOW)
        if kind in ("done", "dead", "leased", "retried"):
            held = await driver.reserve(["default"], NOW, 2 * LEASE, size)
            if kind == "done":
                await driver.settle([Ack(one.lease) for one in held], NOW)
            elif kind == "dead":
                await driver.settle([Fail(one.lease, "x", 1, NOW) for one in held], NOW)
            elif kind == "retried":
                await driver.settle([Retry(one.lease, NOW + timedelta(hours=1), 1) for one in held], NOW)
        elif kind == "cancelled":
            await driver.cancel([job.id for job in others], NOW)
        await driver.enqueue(jobs(50), NOW)

    run(make())
    return driver


@pytest.mark.parametrize("kind", ["scheduled", "blocked", "done", "dead", "leased", "retried", "cancelled"])
def test_a_call_costs_the_same_whatever_jobs_are_kept_beside(kind):
    (few, few_acked), (many, many_acked) = reserve_and_ack(kept(kind, 10)), reserve_and_ack(kept(kind, MANY // 2))
    assert many - few <= 16 * MORE_LEVELS
    assert many_acked <= few_acked + MORE_LEVELS


def test_finished_and_deleted_jobs_leave_nothing_behind():
    """After thousands of jobs that came and went in every way, no structure is larger than what is in it."""
    driver, store, now = MemoryDriver(), None, NOW

    async def live():
        nonlocal now
        for turn in range(lanes.figure(test=600, full=3_000)):
            now += timedelta(milliseconds=7)
            name = f"{turn:06d}"
            group = f"g{turn}" if turn % 2 else None
            made = [
                JobRecord(
                    id=f"{name}-{index}",
                    type="t",
                    queue=f"q{turn % 50}",
                    group=group,
                    flow_id=name,
                    idempotency_key=name + str(index),
                )
                for index in range(3)
            ]
            await driver.enqueue(
                [*made, JobRecord(id=f"{name}-x", type="t", queue=f"q{turn % 50}", depends_on=(made[0].id,))], now
            )
            await driver.requeue([made[2].id], now) if turn % 3 else await driver.cancel([made[2].id], now)
            held = await driver.reserve([f"q{turn % 50}"], now, timedelta(hours=1), 1, "w")
            held += await driver.reserve([f"q{turn % 50}"], now, timedelta(hours=1), 1, "w")
            await driver.extend([one.lease for one in held], now, timedelta(hours=2))
            await driver.release("w", now, [one.lease.token for one in held[1:]])
            await driver.settle([Retry(one.lease, now + timedelta(seconds=5), 1) for one in held[1:]], now)
            await driver.cancel([f"{name}-{suffix}" for suffix in "012x"], now)
            if turn % 2:
                await driver.prune(now + LEASE, 100)
            else:
                await driver.delete([f"{name}-{suffix}" for suffix in "012x"])
            if turn % 100 == 0:
                recount(driver.store)
        await driver.prune(now + LEASE, 100_000)

    run(live())
    store = driver.store
    assert not store.entries
    assert not store.queues
    assert not store.flows
    assert not store.cancelled_flows
    assert len(store.finished._heap) <= 64


def test_a_lease_that_ended_leaves_nothing_behind():
    """After a worker has reserved and acked for a while, its queue has the valid leases and no others."""
    driver = MemoryDriver()
    run(driver.enqueue(jobs(5_000, group="g", group_limit=10), NOW))
    run(driver.enqueue([JobRecord(id=f"u{index}", type="t") for index in range(5_000)], NOW))

    async def work():
        for turn in range(lanes.figure(test=300, full=1_000)):
            now = NOW + timedelta(milliseconds=turn)
            held = await driver.reserve(["default"], now, timedelta(hours=1), 8)
            await driver.settle([Ack(one.lease) for one in held], now)

    run(work())
    queue = driver.store.queues["default"]
    assert (len(queue.ahead), len(queue.behind), len(queue.groups["g"].inflight)) == (0, 0, 0)
    assert len(queue.ahead._heap) <= 70


@pytest.mark.parametrize("group", [None, "g"])
def test_lines_forget_entries_that_were_removed(group):
    """Thousands of jobs come and are cancelled behind one that stays and is not reserved."""
    driver = MemoryDriver()
    run(driver.enqueue([JobRecord(id="first", type="t", group=group)], NOW))

    async def come_and_go():
        for turn in range(lanes.figure(test=300, full=1_000)):
            made = [JobRecord(id=f"{turn}-{index}", type="t", group=group, priority=-index) for index in range(10)]
            await driver.enqueue(made, NOW)
            await driver.cancel([job.id for job in made], NOW)

    run(come_and_go())
    queue = driver.store.queues["default"]
    line = queue.groups[group].due if group else queue.ungrouped
    assert len(line._heap) <= 150
    first = queue.peek()
    assert first is not None
    assert first.record.id == "first"


def test_groups_that_are_gone_leave_no_turn():
    driver = MemoryDriver()

    async def come_and_go():
        for turn in range(lanes.figure(test=500, full=2_000)):
            await driver.enqueue([JobRecord(id=f"{turn}", type="t", group=f"g{turn}")], NOW)
            await driver.cancel([f"{turn}"], NOW)

    run(come_and_go())
    queue = driver.store.queues["default"]
    assert not queue.groups
    assert not queue.turns
