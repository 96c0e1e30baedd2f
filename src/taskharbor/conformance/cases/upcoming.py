"""Upcoming: when a reserve may return more although nothing is called in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import MS, PATIENCE, Environment
from taskharbor.conformance.parts import UPCOMING
from taskharbor.drivers import Retry, State

EARLIEST = (
    "`upcoming` returns the earliest moment after `now` at which a reserve on these queues may return more although "
    "nothing is called in between, or None."
)
MOMENTS = "Such a moment is the `run_at` of a scheduled job, or the end of a valid lease."
NEVER_LATE = "It may be early, as when the queue is paused or the group is full, but never late."
READS = "It reads only, and only the queues asked for."
LATER = "A job that is enqueued for later ends a `wait`, too, so that a worker can ask until when to wait."


async def woken_by_later_jobs(env: Environment, **fields: Any) -> None:
    """More than one is enqueued: the first may come before the other driver has begun to wait."""
    other = await env.sibling()
    waiting = asyncio.create_task(other.wait([env.queue], PATIENCE))
    while not waiting.done():
        await env.add(run_at=env.at(60), **fields)
        await asyncio.wait([waiting], timeout=0.1)
    assert waiting.result() is True, "wait slept through it"


@case(LATER, needs=UPCOMING)
async def enqueue_for_later_wakes(env: Environment) -> None:
    await woken_by_later_jobs(env)


@case(LATER, needs=UPCOMING)
async def grouped_job_for_later_wakes(env: Environment) -> None:
    await woken_by_later_jobs(env, group=env.name("g"))


async def upcoming(env: Environment, at: float = 0, queues: Sequence[str] | None = None) -> datetime | None:
    return await env.driver.upcoming([env.queue] if queues is None else queues, env.at(at))


@case(EARLIEST, needs=UPCOMING)
async def nothing_ahead(env: Environment) -> None:
    assert await upcoming(env) is None
    await env.add()
    assert await upcoming(env) is None
    await env.finished(queue=env.q("other"))
    await env.dead(queue=env.q("third"))
    assert await upcoming(env, queues=[env.queue, env.q("other"), env.q("third"), env.name("unknown")]) is None
    assert await upcoming(env, queues=[]) is None


@case(EARLIEST, MOMENTS, needs=UPCOMING)
async def the_next_run_at(env: Environment) -> None:
    """To the millisecond: a job that is due at `now` is not ahead."""
    await env.add(run_at=env.at(60))
    await env.add(run_at=env.at(30.001))
    await env.add(run_at=env.at(90))
    await env.add(run_at=env.at(-5))
    assert await upcoming(env) == env.at(30.001)
    assert await upcoming(env, 30) == env.at(30.001)
    assert await upcoming(env, 30.001) == env.at(60)
    assert await upcoming(env, 89.999) == env.at(90)
    assert await upcoming(env, 90) is None


@case(EARLIEST, MOMENTS, needs=UPCOMING)
async def the_end_of_a_lease(env: Environment) -> None:
    await env.add_many(2)
    first = await env.take_one(lease=20)
    await env.take_one(lease=10)
    assert await upcoming(env) == env.at(10)
    assert await upcoming(env, 10) == env.at(20)
    assert await upcoming(env, 20) is None
    await env.extend(first, at=19, lease=30)
    assert await upcoming(env, 20) == env.at(49)


@case(EARLIEST, MOMENTS, needs=UPCOMING)
async def whichever_comes_first(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=20)
    await env.add(run_at=env.at(30))
    assert await upcoming(env) == env.at(20)
    await env.ack(held)
    assert await upcoming(env) == env.at(30)
    await env.add(run_at=env.at(15), group=env.name("g"))
    assert await upcoming(env) == env.at(15)


@case(EARLIEST, needs=UPCOMING)
async def after_every_change(env: Environment) -> None:
    """Retried for later, cancelled, requeued, deleted, released."""
    job = await env.add()
    held = await env.take_one(lease=100, worker=env.name("w"))
    await env.done(Retry(held.lease, env.at(5), 1))
    assert await upcoming(env) == env.at(5)
    await env.driver.cancel([job.id], env.now)
    assert await upcoming(env) is None
    await env.driver.requeue([job.id], env.now, env.at(7))
    assert await upcoming(env) == env.at(7)
    await env.take_one(at=7, lease=100, worker=env.name("w"))
    assert await upcoming(env, 8) == env.at(107)
    await env.driver.release(env.name("w"), env.at(9))
    assert await upcoming(env, 9) is None
    await env.driver.requeue([job.id], env.at(9), env.at(50))
    await env.driver.delete([job.id])
    assert await upcoming(env, 9) is None


@case(READS, needs=UPCOMING)
async def only_these_queues(env: Environment) -> None:
    a, b, c = (env.q(name) for name in "abc")
    await env.add(queue=a, run_at=env.at(30))
    await env.add(queue=b, run_at=env.at(20))
    await env.add(queue=c, run_at=env.at(10))
    assert await upcoming(env, queues=[a]) == env.at(30)
    assert await upcoming(env, queues=[a, b]) == env.at(20)
    assert await upcoming(env, queues=[b, a, b, "\ud800", "", "a\x00b"]) == env.at(20)


@case(READS, needs=UPCOMING)
async def a_thousand_queues(env: Environment) -> None:
    queues = [env.q(f"{number:03d}") for number in range(1000)]
    await env.add(queue=queues[700], run_at=env.at(30))
    assert await upcoming(env, queues=queues) == env.at(30)


@case(READS, needs=UPCOMING)
async def nothing_is_changed(env: Environment) -> None:
    """Asked at a later moment, and then at an earlier one again: nothing starts early."""
    scheduled = await env.add(run_at=env.at(30))
    running = await env.add()
    held = await env.take_one(lease=20)
    before = [await env.info(job) for job in (scheduled, running)]
    assert await upcoming(env, 100) is None
    assert [await env.info(job) for job in (scheduled, running)] == before
    assert await env.take(at=1) == []
    await env.ack(held, at=2)
    assert await upcoming(env, 2) == env.at(30)


@case(NEVER_LATE, needs=UPCOMING)
async def paused_and_full(env: Environment) -> None:
    """Early or exact, whatever stands in the way."""
    group = env.name("g")
    await env.add(group=group)
    await env.take_one(lease=20)
    await env.add(group=group, run_at=env.at(10))
    found = await upcoming(env)
    assert found is not None
    assert env.now < found <= env.at(20)
    await env.driver.pause(env.queue)
    await upcoming(env)
    await env.driver.resume(env.queue)
    found = await upcoming(env)
    assert found is not None
    assert env.now < found <= env.at(20)


@case(NEVER_LATE, needs=UPCOMING)
async def never_late_over_random_histories(env: Environment) -> None:
    """Whatever happened before: up to the moment that it names nothing more can be reserved."""
    for seed in range(6):
        pick = random.Random(seed)
        queues = [env.q(f"{seed} {name}") for name in "ab"]
        at = 0.0
        for _ in range(40):
            at += pick.choice([0, 0, 0.001, 1, 3])
            await history(env, pick, queues, at)
            await check_one(env, queues, at)


async def history(env: Environment, pick: random.Random, queues: list[str], at: float) -> None:
    """One random call."""
    queue = pick.choice(queues)
    what = pick.choice(["add", "add", "take", "take", "settle", "cancel", "requeue", "extend"])
    if what == "add":
        run_at = pick.choice([None, env.at(at - 1), env.at(at + pick.randint(1, 9))])
        await env.add(queue=queue, at=at, run_at=run_at, group=pick.choice([None, None, env.name("g")]))
        return
    if what == "take":
        await env.take(pick.randint(1, 2), at=at, queues=[queue], lease=pick.choice([1, 4, 8]), worker=env.name("w"))
        return
    infos = (await env.driver.list(now=env.at(at), queue=queue)).items
    ids = [info.job.id for info in infos]
    if what == "cancel" and ids:
        await env.driver.cancel([pick.choice(ids)], env.at(at))
    elif what == "requeue" and ids:
        await env.driver.requeue([pick.choice(ids)], env.at(at), env.at(at + pick.randint(-2, 6)))
    elif what == "settle":
        for held in await env.take(1, at=at, queues=[queue]):
            await env.done(Retry(held.lease, env.at(at + pick.randint(0, 5)), 1), at=at)
    elif what == "extend":
        for held in await env.take(1, at=at, queues=[queue], lease=2):
            await env.extend(held, at=at, lease=pick.choice([1, 6]))


async def check_one(env: Environment, queues: list[str], at: float) -> None:
    """Every moment at which a job turns ready by itself is at or after the one that is named."""
    found = await upcoming(env, at, queues)
    assert found is None or found > env.at(at)
    infos = [info for queue in queues for info in (await env.driver.list(now=env.at(at), queue=queue)).items]
    moments = [info.job.run_at for info in infos if info.state is State.SCHEDULED]
    moments += [info.lease_expires_at for info in infos if info.state is State.INFLIGHT]
    ahead = min((moment for moment in moments if moment is not None), default=None)
    if ahead is not None:
        assert found is not None, f"nothing is named, although a job turns ready at {ahead}"
        assert found <= ahead, f"late by {(found - ahead) / MS} ms"
