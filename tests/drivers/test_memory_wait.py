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


async def test_a_job_that_arrives_between_reserve_and_wait_ends_the_wait():
    driver = MemoryDriver()
    other = driver.sibling()
    assert await driver.reserve(["default"], NOW, LEASE, 1) == []
    await other.enqueue([job("1")], NOW)
    assert await driver.wait(["default"], LONG) is True
    assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
    assert await driver.wait(["default"], 0) is False


async def test_jobs_that_a_full_reserve_left_end_the_wait():
    driver = MemoryDriver()
    await driver.enqueue([job("1"), job("2")], NOW)
    assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
    assert await driver.wait(["default"], LONG) is True
    assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1
    assert await driver.wait(["default"], 0) is False


ONE, CHAIN = [job("1")], [job("1"), job("2", depends_on=("1",))]
PAIR = [job("1", group="g"), job("2", group="g")]
MORE = job("3", group="g", group_limit=2, run_at=NOW + LEASE)


def take(driver):
    return driver.reserve(["default"], NOW, LEASE, 5, "w")


# The jobs before, the call that leaves nothing ready, and the call that brings work. `held`: what the former returned.
WAYS = {
    "enqueue": ([], take, lambda driver, held: driver.enqueue(ONE, NOW)),
    "retry": (ONE, take, lambda driver, held: driver.settle([Retry(held[0].lease, None, 1)], NOW)),
    "requeue": (ONE, lambda driver: driver.cancel(["1"], NOW), lambda driver, held: driver.requeue(["1"], NOW)),
    "release": (ONE, take, lambda driver, held: driver.release("w", NOW)),
    "resume": (ONE, lambda driver: driver.pause("default"), lambda driver, held: driver.resume("default")),
    "unblock": (CHAIN, take, lambda driver, held: driver.settle([Ack(held[0].lease)], NOW)),
    "free a slot by ack": (PAIR, take, lambda driver, held: driver.settle([Ack(held[0].lease)], NOW)),
    "free a slot by cancel": (PAIR, take, lambda driver, held: driver.cancel(["1"], NOW)),
    "free a slot by delete": (PAIR, take, lambda driver, held: driver.delete(["1"])),
    "raise a limit": (PAIR, take, lambda driver, held: driver.enqueue([MORE], NOW)),
}


@pytest.mark.parametrize("way", WAYS)
async def test_wait_returns_true_when_work_arrives(way):
    driver, (before, prepare, bring) = MemoryDriver(), WAYS[way]
    other = driver.sibling()
    await other.enqueue(before, NOW)
    held = await prepare(other)
    assert await driver.reserve(["default"], NOW, LEASE, 5) == []
    task = await waiting(driver, "other", "default")
    assert not task.done()
    await bring(other, held)
    assert await task is True
    assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1
    assert not driver.store.waiters


async def test_wait_does_not_return_for_other_changes():
    """What gives a reserve nothing ends no wait: other queues, blocked jobs, pauses, jobs that end."""
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


async def test_cancelling_leaves_nothing_behind():
    driver = MemoryDriver()
    task = await waiting(driver)
    assert len(driver.store.waiters) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert not driver.store.waiters
    await driver.enqueue([job("1")], NOW)


async def test_woken_and_cancelled_at_once():
    driver = MemoryDriver()
    task = await waiting(driver)
    await driver.enqueue([job("1")], NOW)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await turn()
    assert len(await driver.reserve(["default"], NOW, LEASE, 1)) == 1


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
