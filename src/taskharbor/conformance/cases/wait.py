"""Wait: a hint that work may have arrived. Nothing here measures time; a signal has seconds to come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import LEASE, PATIENCE, Environment

WAIT = (
    "`wait(queues, timeout)` returns True once work may have arrived in one of the queues, and False "
    "after `timeout` seconds."
)
HINT = "A lost hint costs latency, never a job."


async def woken(
    env: Environment,
    action: Callable[[], Awaitable[object]],
    queues: list[str] | None = None,
    *,
    reserves_first: bool = False,
) -> None:
    """A sibling that waits is woken by what another driver does.

    `reserves_first`: the sibling finds nothing before it waits, so that what was enqueued earlier does not wake it.
    """
    other = await env.sibling()
    if reserves_first:
        assert await other.reserve([env.queue], env.now, timedelta(seconds=LEASE), 1) == []
    waiting = asyncio.create_task(other.wait(queues or [env.queue], PATIENCE))
    for _ in range(20):
        await asyncio.sleep(0)
    await action()
    assert await waiting is True, "wait slept through it"


@case(WAIT)
async def enqueue_wakes(env: Environment) -> None:
    await woken(env, env.add)


@case(WAIT)
async def any_of_the_queues(env: Environment) -> None:
    await woken(env, lambda: env.add(queue=env.q("b")), [env.q("a"), env.q("b"), env.q("c")])


@case(WAIT)
async def grouped_job_wakes(env: Environment) -> None:
    await woken(env, lambda: env.add(group=env.name("g")))


@case(WAIT)
async def retry_wakes(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await woken(env, lambda: env.retry(held))


@case(WAIT)
async def release_wakes(env: Environment) -> None:
    await env.add()
    await env.take_one(worker=env.name("w"))
    await woken(env, lambda: env.driver.release(env.name("w"), env.now))


@case(WAIT)
async def requeue_wakes(env: Environment) -> None:
    job = await env.dead()
    await woken(env, lambda: env.driver.requeue([job.id], env.now))


@case(WAIT)
async def resume_wakes(env: Environment) -> None:
    await env.add()
    await env.driver.pause(env.queue)
    await woken(env, lambda: env.driver.resume(env.queue))


@case(WAIT)
async def unblocking_wakes(env: Environment) -> None:
    """Also in another queue than that of the job that was acked."""
    first = await env.add(queue=env.q("other"))
    await env.add(depends_on=(first.id,))
    held = await env.take_one(queues=[env.q("other")])
    await woken(env, lambda: env.ack(held))


@case(WAIT)
async def spawning_wakes(env: Environment) -> None:
    from taskharbor.drivers import Ack

    await env.add(queue=env.q("other"))
    held = await env.take_one(queues=[env.q("other")])
    await woken(env, lambda: env.done(Ack(held.lease, None, (env.job(),))))


@case(WAIT)
async def freed_capacity_wakes(env: Environment) -> None:
    """The next member of a full group is runnable once a place is free."""
    await env.add_many(2, group=env.name("g"))
    held = await env.take_one()
    assert await env.take() == []
    await woken(env, lambda: env.ack(held))


@case(WAIT, HINT)
async def work_that_came_before(env: Environment) -> None:
    """Between an empty reserve and the wait: the hint is not lost."""
    other = await env.sibling()
    assert await env.take(by=other) == []
    await env.add()
    assert await other.wait([env.queue], PATIENCE) is True
    assert len(await env.take(by=other)) == 1


@case(WAIT)
async def nothing_comes(env: Environment) -> None:
    """False after the timeout; a hint without work behind it is allowed once in a while, not for ever."""
    answers = [await env.driver.wait([env.q("silent")], 0.01) for _ in range(10)]
    assert False in answers
    assert isinstance(await env.driver.wait([env.q("silent")], 0), bool)


@case(WAIT, HINT)
async def many_waiters(env: Environment) -> None:
    """All of them may wake up; one of them gets the job."""
    drivers = await env.siblings(5)
    waiting = [asyncio.create_task(driver.wait([env.queue], PATIENCE)) for driver in drivers]
    for _ in range(20):
        await asyncio.sleep(0)
    await env.add_many(5)
    answers = await asyncio.gather(*waiting)
    assert True in answers
    taken = [held.job.id for driver in drivers for held in await env.take(1, by=driver)]
    assert len(set(taken)) == 5


@case(HINT)
async def no_waiter(env: Environment) -> None:
    """A hint without a waiter loses no job."""
    await env.add_many(3)
    assert len(await env.take()) == 3


@case(HINT)
async def a_cancelled_wait(env: Environment) -> None:
    other = await env.sibling()
    waiting = asyncio.create_task(other.wait([env.queue], PATIENCE))
    for _ in range(20):
        await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
    await env.add()
    assert await other.wait([env.queue], PATIENCE) is True
    assert len(await env.take(by=other)) == 1


@case(WAIT)
async def waking_from_another_thread(env: Environment) -> None:
    from taskharbor.drivers import Driver

    async def put(driver: Driver) -> None:
        await driver.enqueue([env.job()], env.now)

    await woken(env, lambda: env.in_threads([put]))
