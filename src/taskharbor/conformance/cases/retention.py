"""Retention: what prune removes, and what it keeps.

Moments here lie long before those of real jobs, so that a case on a shared store prunes nothing but its own.
"""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import DEFAULT_RETENTION

PRUNE = (
    "`prune(before, limit)` deletes at most `limit` done and cancelled jobs with `finished_at < "
    "before`, and returns their number."
)
NEEDED = "A job on which an unfinished one (neither done nor cancelled) depends is not pruned."
DLQ = "The dead letter queue is never pruned."
FLOW = "No record of a flow is pruned while one of its jobs is neither done nor cancelled."


async def prune(env: Environment, before: float, limit: int = 1000) -> int:
    return await env.driver.prune(env.at(before), limit)


@case(PRUNE)
async def to_the_millisecond(env: Environment) -> None:
    first = await env.finished(at=1)
    second = await env.finished(at=2)
    assert await prune(env, 1) == 0
    assert await prune(env, 1.001) == 1
    assert [await env.gone(job) for job in (first, second)] == [True, False]
    assert await prune(env, 2) == 0


@case(PRUNE)
async def done_and_cancelled(env: Environment) -> None:
    await env.finished()
    await env.add()
    await env.drop(await env.take_one())
    waiting = await env.add()
    await env.driver.cancel([waiting.id], env.now)
    assert await prune(env, 1) == 3
    assert await env.counts() == {}
    assert await prune(env, 1) == 0


@case(PRUNE)
async def at_most_limit(env: Environment) -> None:
    for _ in range(5):
        await env.finished()
    assert [await prune(env, 1, 2) for _ in range(4)] == [2, 2, 1, 0]


@case(PRUNE)
async def limit_of_zero(env: Environment) -> None:
    await env.finished()
    assert await prune(env, 1, 0) == 0
    assert await env.counts() == {"done": 1}


@case(PRUNE)
async def what_is_not_finished_stays(env: Environment) -> None:
    held = await env.add()
    await env.take_one()
    ready, later = await env.add(), await env.add(run_at=env.at(60))
    blocked = await env.add(depends_on=(later.id,))
    assert await prune(env, 10_000) == 0
    assert await env.states(held, ready, later, blocked) == ["inflight", "ready", "scheduled", "blocked"]


@case(PRUNE, "An unknown id is `JobNotFound`; a wrong state is `WrongState`, and nothing is changed.")
async def pruned_is_gone(env: Environment) -> None:
    """Record, result, id: as if the job had never existed."""
    job = await env.finished()
    await prune(env, 1)
    assert await env.gone(job)
    assert await env.driver.results([job.id]) == {}
    assert env.queue not in await env.driver.queues()
    assert (await env.put(job))[0].existed is False


@case(PRUNE)
async def requeued_is_not_pruned(env: Environment) -> None:
    job = await env.add()
    await env.driver.cancel([job.id], env.now)
    await env.driver.requeue([job.id], env.at(1))
    assert await prune(env, 100) == 0
    assert await env.drain(at=5) == [job.id]
    assert await prune(env, 5) == 0
    assert await prune(env, 5.001) == 1


@case(DLQ)
async def dead_letters_stay(env: Environment) -> None:
    job = await env.dead()
    assert await prune(env, 1_000_000) == 0
    assert await env.state(job) == "dlq"


@case(NEEDED)
async def needed_by_a_blocked_job(env: Environment) -> None:
    first = await env.finished()
    second = await env.add(run_at=env.at(60))
    third = await env.add(depends_on=(first.id, second.id))
    assert await prune(env, 1) == 0
    await env.driver.cancel([third.id], env.at(1))
    assert await prune(env, 1) == 1
    assert await env.gone(first)


@case(NEEDED)
async def needed_until_the_dependent_is_done(env: Environment) -> None:
    """Ready, running and dead dependents may still read its result."""
    first = await env.finished()
    second = await env.add(depends_on=(first.id,))
    seen = [await prune(env, 1)]
    held = await env.take_one()
    seen.append(await prune(env, 1))
    await env.fail(held, at=1)
    seen.append(await prune(env, 1))
    await env.driver.requeue([second.id], env.at(2))
    await env.drain(at=3)
    seen.append(await prune(env, 1))
    assert seen == [0, 0, 0, 1]


@case(NEEDED)
async def a_chain_from_its_old_end(env: Environment) -> None:
    first = await env.finished()
    second = await env.finished(depends_on=(first.id,), at=1)
    third = await env.add(depends_on=(second.id,), at=2)
    assert await prune(env, 10) == 1
    assert [await env.gone(job) for job in (first, second, third)] == [True, False, False]


@case(NEEDED)
async def what_is_needed_does_not_use_up_the_limit(env: Environment) -> None:
    """Old records that must stay do not count against the limit."""
    needed = [await env.finished() for _ in range(5)]
    await env.add(depends_on=tuple(job.id for job in needed), run_at=env.at(60))
    await env.finished(at=1)
    assert await prune(env, 10, 2) == 1


@case(FLOW)
async def flow_that_is_not_over(env: Environment) -> None:
    name = env.name("flow")
    await env.finished(flow_id=name)
    open_one = await env.add(flow_id=name)
    outside = await env.finished(flow_id=env.name("other"), queue=env.q("other"))
    assert await prune(env, 1) == 1
    assert await env.gone(outside)
    held = await env.take_one()
    assert await prune(env, 1) == 0
    await env.fail(held, at=1)
    assert await prune(env, 1000) == 0
    await env.driver.requeue([open_one.id], env.at(2))
    await env.drain(at=3)
    assert await prune(env, 1000) == 2


@case(FLOW)
async def flow_whose_last_job_is_deleted(env: Environment) -> None:
    """A prune met its done jobs while it was open; deleting what was left ends it."""
    name = env.name("flow")
    await env.finished(flow_id=name)
    dead = await env.dead(flow_id=name, queue=env.q("other"))
    assert await prune(env, 1000) == 0
    assert await env.driver.delete([dead.id]) == [None]
    assert await prune(env, 1000) == 1


@case(FLOW)
async def flow_that_goes_on(env: Environment) -> None:
    """A job that joins a finished flow keeps its records again."""
    name = env.name("flow")
    await env.finished(flow_id=name)
    late = await env.add(flow_id=name, at=1)
    assert await prune(env, 1000) == 0
    await env.driver.cancel([late.id], env.at(2))
    assert await prune(env, 1000) == 2


@case("`retention` is 24 hours unless the DSN says otherwise.")
async def a_day(env: Environment) -> None:
    if "retention" in env.dsn:
        env.skip("the DSN says otherwise")
    assert env.driver.retention == DEFAULT_RETENTION
    assert env.driver.sibling().retention == DEFAULT_RETENTION
