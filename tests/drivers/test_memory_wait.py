"""Waiting for work across threads and event loops. No test here waits for time to pass."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from taskharbor.drivers import Ack, JobRecord, Retry
from taskharbor.drivers.memory import MemoryDriver

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
LONG = 20.0  # seconds: a lost wake-up is a False after these


def job(id, **fields):
    return JobRecord(id=id, type="t", **fields)


async def turn():
    """Let everything that is ready on the loop run once."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def waiting(driver, *queues):
    """A call of `wait` that waits."""
    task = asyncio.create_task(driver.wait(queues or ["default"], LONG))
    await turn()
    return task


def test_a_job_that_arrives_between_reserve_and_wait_ends_the_wait():
    async def go():
        driver = MemoryDriver()
        other = driver.sibling()
        assert await driver.reserve(["default"], NOW, LEASE, 1) == []
        await other.enqueue([job("1")], NOW)
        assert await driver.wait(["default"], LONG) is True
        assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
        assert await driver.wait(["default"], 0) is False

    asyncio.run(go())


def test_jobs_that_a_full_reserve_left_end_the_wait():
    async def go():
        driver = MemoryDriver()
        await driver.enqueue([job("1"), job("2")], NOW)
        assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
        assert await driver.wait(["default"], LONG) is True
        assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
        assert await driver.wait(["default"], 0) is False

    asyncio.run(go())


async def enqueues(driver):
    yield
    await driver.enqueue([job("1")], NOW)


async def retries(driver):
    await driver.enqueue([job("1")], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.settle([Retry(held[0].lease, None, 1)], NOW)


async def requeues(driver):
    await driver.enqueue([job("1")], NOW)
    await driver.cancel(["1"], NOW)
    yield
    await driver.requeue(["1"], NOW)


async def releases(driver):
    await driver.enqueue([job("1")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 5, "w")
    yield
    await driver.release("w", NOW)


async def resumes(driver):
    await driver.pause("default")
    await driver.enqueue([job("1")], NOW)
    yield
    await driver.resume("default")


async def unblocks(driver):
    await driver.enqueue([job("1"), job("2", depends_on=("1",))], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.settle([Ack(held[0].lease)], NOW)


async def frees_a_slot_by_ack(driver):
    await driver.enqueue([job("1", group="g"), job("2", group="g")], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.settle([Ack(held[0].lease)], NOW)


async def frees_a_slot_by_cancel(driver):
    await driver.enqueue([job("1", group="g"), job("2", group="g")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.cancel(["1"], NOW)


async def frees_a_slot_by_delete(driver):
    await driver.enqueue([job("1", group="g"), job("2", group="g")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.delete(["1"])


async def raises_a_limit(driver):
    await driver.enqueue([job("1", group="g"), job("2", group="g")], NOW)
    await driver.reserve(["default"], NOW, LEASE, 5)
    yield
    await driver.enqueue([job("3", group="g", group_limit=2, run_at=NOW + LEASE)], NOW)


WAYS = [
    enqueues,
    retries,
    requeues,
    releases,
    resumes,
    unblocks,
    frees_a_slot_by_ack,
    frees_a_slot_by_cancel,
    frees_a_slot_by_delete,
    raises_a_limit,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_wait_returns_true_when_work_arrives(way):
    async def go():
        driver = MemoryDriver()
        steps = way(driver.sibling())
        await anext(steps)
        assert await driver.reserve(["default"], NOW, LEASE, 5) == []
        task = await waiting(driver, "other", "default")
        assert not task.done()
        assert await anext(steps, "end") == "end"
        assert await task is True
        assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1
        assert not driver.store.waiters

    asyncio.run(go())


def test_wait_does_not_return_for_other_changes():
    """What gives a reserve nothing ends no wait: other queues, blocked jobs, pauses, jobs that end."""

    async def go():
        driver = MemoryDriver()
        await driver.enqueue([job("1"), job("0", queue="other")], NOW)
        held = await driver.reserve(["default"], NOW, LEASE, 5)
        task = await waiting(driver)
        await driver.enqueue([job("2", queue="other"), job("4", depends_on=("0",))], NOW)
        await driver.settle([Ack(held[0].lease)], NOW)
        await driver.pause("other")
        await driver.resume("other")
        await driver.cancel(["2"], NOW)
        await turn()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(go())


def test_cancelling_leaves_nothing_behind():
    async def go():
        driver = MemoryDriver()
        task = await waiting(driver)
        assert len(driver.store.waiters) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert not driver.store.waiters
        await driver.enqueue([job("1")], NOW)

    asyncio.run(go())


def test_woken_and_cancelled_at_once():
    async def go():
        driver = MemoryDriver()
        task = await waiting(driver)
        await driver.enqueue([job("1")], NOW)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await turn()
        assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1

    asyncio.run(go())


def test_a_waiting_call_on_a_closed_loop_does_not_hinder_the_others():
    driver = MemoryDriver()
    loop = asyncio.new_event_loop()
    coroutine = driver.wait(["default"], LONG)

    async def begin():
        coroutine.send(None)  # waits for ever: its loop is closed without cancelling it

    loop.run_until_complete(begin())
    loop.close()
    assert len(driver.store.waiters) == 1

    async def go():
        task = await waiting(driver)
        await driver.enqueue([job("1")], NOW)
        assert await task is True

    asyncio.run(go())
    assert not driver.store.waiters
    coroutine.close()


def test_across_threads():
    driver = MemoryDriver()
    answers = []
    begun = threading.Barrier(9)

    def live():
        async def go():
            task = await waiting(driver.sibling())
            await asyncio.to_thread(begun.wait)
            answers.append(await task)

        asyncio.run(go())

    threads = [threading.Thread(target=live) for _ in range(8)]
    for thread in threads:
        thread.start()
    begun.wait()
    assert len(driver.store.waiters) == 8
    asyncio.run(driver.enqueue([job("1")], NOW))
    for thread in threads:
        thread.join()
    assert answers == [True] * 8
    assert not driver.store.waiters
