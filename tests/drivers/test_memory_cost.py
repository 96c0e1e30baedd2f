"""What a call costs, counted in operations and never in time: it must not grow with what is kept beside it.

Counted are the function calls that the interpreter makes during a driver's call, C functions included, and each
comparison of two times, of which every comparison inside a heap or a run is made.
"""

import asyncio
import gc
import random
import sys
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Retry
from taskharbor.drivers.memory import MemoryDriver, admin, enqueue, leases, reading, reserve, settle
from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.model import times
from tests.drivers.memory_recount import recount

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


class Time(int):
    """A moment that counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        Time.compared += 1
        return int.__lt__(self, other)

    def __gt__(self, other):
        Time.compared += 1
        return int.__gt__(self, other)

    def __eq__(self, other):
        Time.compared += 1
        return int.__eq__(self, other)

    __hash__ = int.__hash__


@pytest.fixture(autouse=True)
def counting_times(monkeypatch):
    for module in (admin, enqueue, leases, reading, reserve, settle):
        monkeypatch.setattr(module, "to_us", lambda moment: Time(times.to_us(moment)))


def cost(coroutine):
    """The result of a call that awaits nothing, and the number of operations it took."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = Time.compared
    sys.setprofile(count)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answer = stop.value
    finally:
        sys.setprofile(None)
    return answer, calls + Time.compared - before


def run(coroutine):
    return asyncio.run(coroutine)


def jobs(count, **fields):
    return [JobRecord(**{"id": f"{index:06d}", "type": "t", "created_at": NOW, **fields}) for index in range(count)]


def reserve_and_ack(driver, batch=16):
    """What it takes to reserve and ack a batch, once what only the first call has to do is done."""
    run(driver.reserve(["default"], NOW, LEASE, 1))
    reserved, first = cost(driver.reserve(["default"], NOW, LEASE, batch))
    assert len(reserved) == batch
    answers, second = cost(driver.settle([Ack(one.lease) for one in reserved], NOW))
    assert answers == [None] * batch
    return first, second


@pytest.mark.parametrize("fields", [{}, {"group": "g", "group_limit": 50}], ids=["line", "group"])
def test_a_call_costs_the_same_with_any_backlog(fields):
    costs = []
    for size in (50, 50_000):
        driver = MemoryDriver()
        run(driver.enqueue(jobs(size, **fields), NOW))
        costs.append(reserve_and_ack(driver))
    (small, small_ack), (large, large_ack) = costs
    # A group's members are in a heap: a thousand times as many are ten levels more for each of the sixteen.
    assert large - small <= (16 * 10 * 3 if fields else 0)
    assert large_ack == small_ack


def test_backlog_of_many_priorities_grows_with_its_logarithm():
    costs = []
    for size in (50, 50_000):
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
    assert costs[1] - costs[0] <= 16 * 10 * 3


def test_a_call_costs_the_same_with_many_groups():
    costs = []
    for groups in (50, 10_000):
        driver = MemoryDriver()
        made = [JobRecord(id=f"{index:06d}", type="t", group=f"g{index % groups}") for index in range(20_000)]
        run(driver.enqueue(made, NOW))
        costs.append(reserve_and_ack(driver))
    # Fewer members in each of more groups: no more comparisons, and no group is visited out of its turn.
    assert costs[1] <= costs[0]


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
    few, many = reserve_and_ack(kept(kind, 10)), reserve_and_ack(kept(kind, 5_000))
    assert many == few


def test_prune_skips_the_jobs_that_it_must_keep():
    """Jobs that an open flow still needs are visited once, not by each prune."""
    driver = MemoryDriver()
    flow = [
        JobRecord(id=f"f{index}", type="t", flow_id="f", run_at=NOW + LEASE if index == 0 else None)
        for index in range(3_000)
    ]
    run(driver.enqueue(flow, NOW))
    held = run(driver.reserve(["default"], NOW, LEASE, 5_000))
    run(driver.settle([Ack(one.lease) for one in held], NOW))
    later = NOW + timedelta(days=2)
    assert run(driver.prune(later, 100)) == 0
    gone, operations = cost(driver.prune(later, 100))
    assert gone == 0
    assert operations < 20
    last = run(driver.reserve(["default"], NOW + LEASE, LEASE, 1))
    run(driver.settle([Ack(last[0].lease)], NOW + LEASE))
    assert [run(driver.prune(later, 2_000)) for _ in range(3)] == [2_000, 1_000, 0]
    assert not driver.store.entries


def test_finished_and_deleted_jobs_leave_nothing_behind():
    """After thousands of jobs that came and went in every way, no structure is larger than what is in it."""
    driver, store, now = MemoryDriver(), None, NOW

    async def live():
        nonlocal now
        for turn in range(3_000):
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
    assert store.finished.size() <= 130
    assert all(len(names.in_order(0)) <= 64 for names in (store.ids, store.flow_ids, *store.ids_in.values()))


def test_a_lease_that_ended_leaves_nothing_behind():
    """After a worker has reserved and acked for a while, the calendar has the valid leases and no others."""
    driver = MemoryDriver()
    run(driver.enqueue(jobs(5_000, group="g", group_limit=10), NOW))
    run(driver.enqueue([JobRecord(id=f"u{index}", type="t") for index in range(5_000)], NOW))

    async def work():
        for turn in range(1_000):
            now = NOW + timedelta(milliseconds=turn)
            held = await driver.reserve(["default"], now, timedelta(hours=1), 8)
            await driver.settle([Ack(one.lease) for one in held], now)

    run(work())
    queue = driver.store.queues["default"]
    assert not queue.calendar.ahead
    assert not queue.calendar.behind
    assert len(queue.calendar._next) <= 70
    assert len(queue.groups.turns) <= 1


@pytest.mark.parametrize("group", [None, "g"])
def test_heaps_forget_entries_that_were_removed(group):
    """Ten thousand jobs come and are cancelled behind one that stays and is not reserved."""
    driver = MemoryDriver()
    run(driver.enqueue([JobRecord(id="first", type="t", group=group)], NOW))

    async def come_and_go():
        for turn in range(1_000):
            made = [JobRecord(id=f"{turn}-{index}", type="t", group=group, priority=-index) for index in range(10)]
            await driver.enqueue(made, NOW)
            await driver.cancel([job.id for job in made], NOW)

    run(come_and_go())
    queue = driver.store.queues["default"]
    line = queue.groups._groups[group] if group else queue.ungrouped
    assert line.size() <= 150
    first = line.peek()
    assert first is not None
    assert first.record.id == "first"


def test_groups_that_are_gone_leave_no_turn():
    driver = MemoryDriver()

    async def come_and_go():
        for turn in range(2_000):
            await driver.enqueue([JobRecord(id=f"{turn}", type="t", group=f"g{turn}")], NOW)
            await driver.cancel([f"{turn}"], NOW)

    run(come_and_go())
    groups = driver.store.queues["default"].groups
    assert len(groups) == 0
    assert len(groups.turns) <= 70


@pytest.mark.parametrize("group", [None, "g"])
def test_queues_that_are_gone_are_collected(group):
    """Entries are hidden from the garbage collector: a stale item in a heap must not keep its queue alive."""
    driver = MemoryDriver()

    async def come_and_go():
        for turn in range(50):
            await driver.enqueue([JobRecord(id=f"{turn}", type="t", queue=f"gone-{turn}", group=group)], NOW)
            await driver.delete([f"{turn}"])

    run(come_and_go())
    gc.collect()
    assert [
        thing.name for thing in gc.get_objects() if type(thing) is JobQueue and thing.name.startswith("gone-")
    ] == []
