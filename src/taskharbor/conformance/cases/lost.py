"""`lost`: how often a lease ended without an outcome, and what resets it."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Reserved, Retry

BACK = "Every recorded outcome and every requeue sets `lost` back to 0; a give-back, which records none, leaves it."
TAKEOVER = "Taking over an expired job adds one to `lost`."


async def twice_lost(env: Environment, queue: str | None = None) -> Reserved:
    """A job that crashed twice, leased from 20 to 30."""
    await env.add(queue=queue or env.queue)
    for turn in (0, 1):
        await env.take_one(at=turn * 10, lease=10, queues=[queue or env.queue])
    held = await env.take_one(at=20, lease=10, queues=[queue or env.queue])
    assert held.job.lost == 2
    return held


@case(TAKEOVER)
async def counts_every_takeover(env: Environment) -> None:
    job = await env.add()
    seen = [(await env.take_one(at=turn * 10, lease=10)).job.lost for turn in range(6)]
    assert seen == [0, 1, 2, 3, 4, 5]
    assert (await env.info(job, 55)).job.lost == 5


@case(TAKEOVER)
async def counts_once_for_each(env: Environment) -> None:
    """However long the lease has been over, and however often it was read since, it counts once."""
    job = await env.add()
    await env.take_one(lease=10)
    for at in (10, 100, 1000):
        await env.info(job, at)
        await env.counts(at)
        await env.take(0, at=at)
    assert (await env.take_one(at=10_000)).job.lost == 1


@case(TAKEOVER)
async def attempts_are_not_touched(env: Environment) -> None:
    await env.add(attempts=1)
    await env.take_one(lease=10)
    record = (await env.take_one(at=10)).job
    assert (record.attempts, record.last_error, record.failed_at) == (1, "", None)


@case(BACK)
async def set_back_by_outcomes(env: Environment) -> None:
    for finish in (env.ack, env.retry, env.fail, env.drop):
        held = await twice_lost(env, env.q(finish.__name__))
        await finish(held, at=21)
        assert (await env.info(held, 21)).job.lost == 0


@case(BACK)
async def left_by_give_back(env: Environment) -> None:
    held = await twice_lost(env)
    await env.done(Retry(held.lease, None, held.job.attempts), at=21)
    assert (await env.info(held, 21)).job.lost == 2
    again = await env.take_one(at=22, lease=10)
    assert again.job.lost == 2
    assert (await env.take_one(at=32)).job.lost == 3


@case(BACK)
async def left_by_a_snooze(env: Environment) -> None:
    """The same with a `run_at`, and with failures recorded before."""
    await env.add(attempts=2)
    await env.take_one(lease=10)
    held = await env.take_one(at=10)
    await env.done(Retry(held.lease, env.at(50), 2), at=11)
    assert (await env.take_one(at=50)).job.lost == 1


@case(BACK)
async def set_back_by_requeue(env: Environment) -> None:
    """Cancelled during its third delivery, then requeued: it starts at zero."""
    for reset in (False, True):
        held = await twice_lost(env, env.q(str(reset)))
        await env.driver.cancel([held.job.id], env.at(21))
        await env.driver.requeue([held.job.id], env.at(22), None, reset)
        assert (await env.info(held, 22)).job.lost == 0
        assert (await env.take_one(at=22, queues=[held.job.queue])).job.lost == 0


@case(BACK, "Release adds one to `lost`, clears `run_at`, and spends no attempt.")
async def release_and_expiry_add_up(env: Environment) -> None:
    held = await twice_lost(env)
    await env.driver.cancel([held.job.id], env.at(21))
    await env.driver.requeue([held.job.id], env.at(22))
    worker = env.name("w")
    await env.take_one(at=23, lease=10, worker=worker)
    await env.take_one(at=33, lease=10, worker=worker)
    await env.driver.release(worker, env.at(34))
    assert (await env.take_one(at=35)).job.lost == 2
