"""Pause: a flag that stops new reservations and nothing else."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of, refusals

PAUSED = "A paused queue returns nothing."
GIVES_NONE = "A paused queue gives no new reservation; resume gives them again."
TOUCHES_NONE = "Pause moves no job and touches no running one: what is inflight can be extended and settled."


@case(PAUSED, GIVES_NONE)
async def pause_and_resume(env: Environment) -> None:
    jobs = await env.add_many(2)
    assert await env.driver.is_paused(env.queue) is False
    await env.driver.pause(env.queue)
    assert await env.driver.is_paused(env.queue) is True
    assert await env.take() == []
    await env.driver.resume(env.queue)
    assert await env.driver.is_paused(env.queue) is False
    assert await env.taken_ids() == ids_of(jobs)


@case(GIVES_NONE)
async def a_flag_not_a_counter(env: Environment) -> None:
    job = await env.add()
    await env.driver.pause(env.queue)
    await env.driver.pause(env.queue)
    await env.driver.resume(env.queue)
    assert await env.taken_ids() == [job.id]
    await env.driver.resume(env.queue)
    assert await env.driver.is_paused(env.queue) is False


@case(PAUSED)
async def grouped_scheduled_and_expired_too(env: Environment) -> None:
    expired = await env.add()
    await env.take_one(lease=5)
    await env.add(group=env.name("g"))
    await env.add(run_at=env.at(3))
    await env.driver.pause(env.queue)
    assert await env.take(at=10) == []
    assert await env.counts(10) == {"ready": 3}
    await env.driver.resume(env.queue)
    taken = await env.take(at=10)
    assert len(taken) == 3
    assert [held.job.lost for held in taken if held.job.id == expired.id] == [1]


@case(PAUSED)
async def only_the_queue_named(env: Environment) -> None:
    a, b = env.q("a"), env.q("a*")
    first, second = await env.add(queue=a), await env.add(queue=b)
    await env.driver.pause(b)
    assert await env.driver.is_paused(a) is False
    assert await env.taken_ids(queues=[a, b]) == [first.id]
    await env.driver.resume(b)
    assert await env.taken_ids(queues=[a, b]) == [second.id]


@case(GIVES_NONE)
async def siblings_see_it(env: Environment) -> None:
    other = await env.sibling()
    await env.add()
    await env.driver.pause(env.queue)
    assert await other.is_paused(env.queue) is True
    assert await env.take(by=other) == []
    await other.resume(env.queue)
    assert len(await env.take()) == 1


@case(TOUCHES_NONE)
async def inflight_goes_on(env: Environment) -> None:
    jobs = await env.add_many(3)
    acked, retried, failed = await env.take(lease=10)
    await env.driver.pause(env.queue)
    assert refusals(await env.extend(acked, retried, failed, at=5)) == ["ok"] * 3
    await env.ack(acked, at=14)
    await env.retry(retried, at=14)
    await env.fail(failed, at=14)
    assert await env.states(*jobs, at=14) == ["done", "ready", "dlq"]
    assert await env.take(at=14) == []


@case(TOUCHES_NONE)
async def moves_no_job(env: Environment) -> None:
    """Order, states and records are the same before and after; enqueueing goes on in between."""
    first, second = await env.add(priority=1), await env.add(run_at=env.at(5))
    before = (await env.driver.list(now=env.now, queue=env.queue)).items
    await env.driver.pause(env.queue)
    assert (await env.driver.list(now=env.now, queue=env.queue)).items == before
    third = await env.add(priority=2)
    await env.driver.resume(env.queue)
    assert await env.drain(at=5) == ids_of([third, first, second])


@case(TOUCHES_NONE)
async def flows_go_on(env: Environment) -> None:
    """An ack in a paused queue releases what depends on it, there and elsewhere."""
    parent = await env.add()
    child = await env.add(depends_on=(parent.id,))
    elsewhere = await env.add(depends_on=(parent.id,), queue=env.q("other"))
    held = await env.take_one()
    await env.driver.pause(env.queue)
    await env.ack(held)
    assert await env.states(child, elsewhere) == ["ready", "ready"]
    assert await env.taken_ids(queues=[env.queue, env.q("other")]) == [elsewhere.id]


@case("`queues()` returns the names of the queues that hold a job or are paused, in order.", GIVES_NONE)
async def pause_before_the_first_job(env: Environment) -> None:
    queue = env.q("new")
    await env.driver.pause(queue)
    assert queue in await env.driver.queues()
    await env.add(queue=queue)
    assert await env.take(queues=[queue]) == []
    await env.driver.resume(queue)
    assert len(await env.take(queues=[queue])) == 1


@case("`queues()` returns the names of the queues that hold a job or are paused, in order.")
async def resumed_and_empty_is_gone(env: Environment) -> None:
    queue = env.q("new")
    await env.driver.resume(queue)
    await env.driver.pause(queue)
    await env.driver.resume(queue)
    assert queue not in await env.driver.queues()
