"""`keep_for`: jobs that are kept longer, or shorter, than the store keeps others.

The moments at which something is pruned follow from the retention of the driver, whatever that is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import MS, Environment
from taskharbor.conformance.parts import ATTEMPTS
from taskharbor.drivers import Ack, InvalidJob, JobRecord

PRUNED = (
    "A done or cancelled job with a `keep_for` is pruned once `finished_at + keep_for < before + retention`, where "
    "`retention` is the driver's; `finished_at` alone no longer counts for it."
)
NEEDED = (
    "A `keep_for` may be shorter or longer than the retention. What an unfinished job or flow needs stays in any case."
)
BOUND = "A `keep_for` is 0 to 3,650 days; anything else is `InvalidJob`."
STORED = (
    "Of an enqueued or spawned record `began_at`, `ran_on`, `trail`, `error_class`, `fingerprint`, `note` and `edits` "
    "are ignored; `keep_for` is stored."
)
HOUR = timedelta(hours=1)


async def prune(
    env: Environment, at: float, keep_for: timedelta, late: timedelta = timedelta(), limit: int = 99
) -> int:
    """Prune `late` after the moment up to which a job that finished at `at` is kept."""
    return await env.driver.prune(env.at(at) + keep_for - env.driver.retention + late, limit)


@case(STORED, needs=ATTEMPTS)
async def stored(env: Environment) -> None:
    await env.add(keep_for=HOUR)
    held = await env.take_one()
    assert held.job.keep_for == HOUR
    spawned = env.job(keep_for=timedelta(0))
    await env.done(Ack(held.lease, spawn=(spawned,)))
    assert (await env.info(held)).job.keep_for == HOUR
    assert (await env.info(spawned)).job.keep_for == timedelta(0)
    assert (await env.take_one()).job.keep_for == timedelta(0)


@case(PRUNED, NEEDED, needs=ATTEMPTS)
async def to_the_millisecond(env: Environment) -> None:
    """Shorter than the retention, and longer."""
    for number, keep_for in enumerate((env.driver.retention / 2, env.driver.retention + HOUR)):
        job = await env.finished(at=number, keep_for=keep_for)
        assert await prune(env, number, keep_for) == 0
        assert await prune(env, number, keep_for, MS) == 1
        assert await env.gone(job)


@case(PRUNED, needs=ATTEMPTS)
async def beside_others(env: Environment) -> None:
    """One prune takes what is due of both kinds, and no other."""
    retention = env.driver.retention
    plain = await env.finished()
    short = await env.finished(keep_for=retention - HOUR)
    long = await env.finished(keep_for=retention + HOUR)
    equal = await env.finished(keep_for=retention)
    assert await env.driver.prune(env.now, 99) == 1
    assert [await env.gone(job) for job in (plain, short, long, equal)] == [False, True, False, False]
    assert await env.driver.prune(env.now + MS, 99) == 2
    assert [await env.gone(job) for job in (plain, long, equal)] == [True, False, True]
    assert await env.driver.prune(env.now + HOUR, 99) == 0
    assert await env.driver.prune(env.now + HOUR + MS, 99) == 1


@case(PRUNED, needs=ATTEMPTS)
async def nothing_at_all(env: Environment) -> None:
    """A job that nobody wants to see again goes with the first prune after its end."""
    job = await env.finished(at=1, keep_for=timedelta(0))
    assert await prune(env, 1, timedelta(0)) == 0
    assert await prune(env, 1, timedelta(0), MS) == 1
    assert await env.gone(job)


@case(PRUNED, needs=ATTEMPTS)
async def cancelled_jobs_too(env: Environment) -> None:
    first, second = await env.add_many(2, keep_for=HOUR)
    await env.drop(await env.take_one())
    await env.driver.cancel([second.id], env.now)
    assert await prune(env, 0, HOUR) == 0
    assert await prune(env, 0, HOUR, MS) == 2
    assert await env.gone(first)


@case(PRUNED, "The dead letter queue is never pruned.", needs=ATTEMPTS)
async def neither_dead_nor_unfinished_ones(env: Environment) -> None:
    dead = await env.dead(keep_for=HOUR)
    ready = await env.add(keep_for=HOUR)
    assert await prune(env, 0, 2 * HOUR) == 0
    assert await env.states(dead, ready) == ["dlq", "ready"]


@case(PRUNED, needs=ATTEMPTS)
async def many_in_their_order_and_limit(env: Environment) -> None:
    """The limit counts both kinds together."""
    for number in range(3):
        await env.finished(keep_for=HOUR * number)
    for _ in range(2):
        await env.finished()
    late = max(2 * HOUR, env.driver.retention) + MS
    before = env.now + late - env.driver.retention
    assert [await env.driver.prune(before, 2) for _ in range(4)] == [2, 2, 1, 0]


@case(PRUNED, needs=ATTEMPTS)
async def requeued_and_finished_again(env: Environment) -> None:
    """The end that counts is the last one."""
    job = await env.add(keep_for=HOUR)
    await env.driver.cancel([job.id], env.now)
    await env.driver.requeue([job.id], env.at(1))
    assert await prune(env, 0, 2 * HOUR) == 0
    await env.drain(at=50)
    assert await prune(env, 50, HOUR) == 0
    assert await prune(env, 50, HOUR, MS) == 1


@case(NEEDED, needs=ATTEMPTS)
async def needed_by_a_job(env: Environment) -> None:
    first = await env.finished(keep_for=HOUR)
    second = await env.add(depends_on=(first.id,))
    assert await prune(env, 0, HOUR, HOUR) == 0
    await env.driver.cancel([second.id], env.at(1))
    assert await prune(env, 0, HOUR, HOUR) >= 1
    assert await env.gone(first)


@case(NEEDED, needs=ATTEMPTS)
async def needed_by_a_flow(env: Environment) -> None:
    first = await env.finished(flow_id=env.name("f"), keep_for=HOUR)
    second = await env.add(flow_id=env.name("f"), keep_for=3 * HOUR)
    assert await prune(env, 0, HOUR, HOUR) == 0
    await env.driver.cancel([second.id], env.at(1))
    assert await prune(env, 0, HOUR, HOUR) == 1
    assert [await env.gone(job) for job in (first, second)] == [True, False]
    assert await prune(env, 1, 3 * HOUR, MS) == 1


@case(BOUND, needs=ATTEMPTS)
async def bounds(env: Environment) -> None:
    for good in (timedelta(0), MS, timedelta(days=3650)):
        job = await env.add(keep_for=good)
        assert (await env.info(job)).job.keep_for == good
    bad: tuple[Any, ...] = (-MS, timedelta(days=3650) + MS, 60, "1h")
    for wrong in bad:
        job = JobRecord(id=env.name("wrong"), type="work", queue=env.queue, keep_for=wrong)
        try:
            await env.put(job)
        except InvalidJob:
            continue
        raise AssertionError(f"keep_for={wrong!r} was stored")
