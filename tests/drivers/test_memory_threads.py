"""Eight threads on one memory store, switching as often as the interpreter can: every invariant holds."""

import asyncio
import random
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, Cancelled, Fail, JobRecord, Retry
from taskharbor.drivers.memory import MemoryDriver
from tests import lanes
from tests.drivers.memory_recount import recount

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(hours=1)
THREADS = 8


@pytest.fixture
def hectic():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(function):
    """Run it in eight threads, each with a loop of its own; the first error of any of them is raised here."""
    errors = []

    def live(number):
        try:
            asyncio.run(function(number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.lane("threads-memory")
@pytest.mark.parametrize("number", range(lanes.figure(2, 15)))
def test_eight_threads(hectic, number):
    name = f"memory://threads-{lanes.seed()}-{number}"
    total = lanes.figure(400, 2_000)
    holders: dict[str, int] = {}
    settled: Counter[str] = Counter()
    running: Counter[str | None] = Counter()
    guard = threading.Lock()
    begun = threading.Barrier(THREADS)

    async def worker(thread):
        driver, pick = MemoryDriver(name), random.Random(f"{lanes.seed()}/{number}/{thread}")
        begun.wait()
        for index in range(total // 10):
            await driver.enqueue([made(thread, index * 10 + offset, pick) for offset in range(10)], NOW)
            await work(driver, thread, pick)
        while await work(driver, thread, pick):
            pass

    async def work(driver, thread, pick):
        held = await driver.reserve(["a", "b"], NOW, LEASE, pick.randint(1, 8), f"w{thread}")
        with guard:
            for one in held:
                assert one.job.id not in holders, "two threads hold one job"
                holders[one.job.id] = thread
                running[one.job.group] += 1
                assert one.job.group is None or running[one.job.group] <= 3, "a group is over its limit"
        outcomes = [outcome(one, pick) for one in held]
        with guard:
            for one in held:
                del holders[one.job.id]
                running[one.job.group] -= 1
        assert await driver.settle(outcomes, NOW) == [None] * len(held)
        with guard:
            settled.update(one.job.id for one, end in zip(held, outcomes, strict=True) if not isinstance(end, Retry))
        return held

    def made(thread, index, pick):
        group = pick.choice([None, None, "g", "h"])
        key = pick.choice([None, f"key-{index}"])  # the same in every thread: one of eight is stored
        return JobRecord(
            id=f"{thread}-{index}",
            type="t",
            queue="b" if group else "a",
            group=group,
            group_limit=3 if group else 0,
            idempotency_key=key,
        )

    def outcome(one, pick):
        if one.job.attempts < 3 and pick.random() < 0.3:
            return Retry(one.lease, None, one.job.attempts + 1)
        return pick.choice(
            [Ack(one.lease), Ack(one.lease, b"r"), Fail(one.lease, "x", 1, NOW), Cancelled(one.lease, "x")]
        )

    in_threads(worker)
    driver = MemoryDriver(name)
    asyncio.run(finish(driver, work))
    entries = driver.store.entries
    assert set(settled) == set(entries)
    assert set(settled.values()) == {1}
    assert len(entries) <= THREADS * total
    counts = asyncio.run(driver.counts(NOW))
    assert sum(number for states in counts.values() for number in states.values()) == len(entries)
    assert {state for states in counts.values() for state in states} == {"done", "dlq", "cancelled"}
    keys = Counter(
        (entry.record.queue, entry.record.idempotency_key) for entry in entries.values() if entry.record.idempotency_key
    )
    assert set(keys.values()) == {1}
    recount(driver.store)


async def finish(driver, work):
    """What a thread gave back after the others had left."""
    while await work(driver, THREADS, random.Random(0)):
        pass


@pytest.mark.lane("threads-memory")
def test_one_of_two_outcomes_wins(hectic):
    """The same delivery settled by all threads at once, each in its own way."""
    driver = MemoryDriver()
    kinds = (
        lambda lease: Ack(lease),
        lambda lease: Retry(lease, None, 1),
        lambda lease: Fail(lease, "x", 1, NOW),
        lambda lease: Cancelled(lease, "x"),
    )
    count = lanes.figure(100, 1_000)
    asyncio.run(driver.enqueue([JobRecord(id=str(index), type="t") for index in range(count)], NOW))
    held = asyncio.run(driver.reserve(["default"], NOW, LEASE, count))
    won: list[list[int]] = [[] for _ in range(count)]
    begun = threading.Barrier(THREADS)

    async def race(thread):
        own = driver.sibling()
        begun.wait()
        for index, one in enumerate(held):
            if await own.settle([kinds[thread % 4](one.lease)], NOW) == [None]:
                won[index].append(thread % 4)

    in_threads(race)
    # Two threads settle in the same way: the second repeats the first, and gets None.
    assert all(len(set(kinds)) == 1 for kinds in won)
    recount(driver.store)
