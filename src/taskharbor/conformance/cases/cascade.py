"""Jobs that can never run because one before them was cancelled: cancelled with it, and brought back with it."""

from __future__ import annotations

from collections.abc import Sequence

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON, FLOW_CANCELLED_REASON, MAX_FOLLOWED_JOBS

CASCADE = (
    "Cancelling a job, by its outcome or by `cancel`, cancels the blocked jobs of its flow that depend on it, and "
    "those behind them, with the reason `a job that it depends on was cancelled`; a dependent outside of the flow "
    "stays blocked."
)
LATER = (
    "A job that is stored behind a cancelled job of its flow, or waits for one after a handover, is cancelled with "
    "that reason."
)
BACK = (
    "Requeueing a job brings back what was cancelled with it in this way, except what depends on another cancelled job "
    "of the flow."
)
SLICES = "A call does so for at least 1,000 jobs; `prune` goes on with the rest, and adds them to its number."


async def chain(env: Environment, length: int, queues: Sequence[str] = ()) -> list[JobRecord]:
    """Jobs of one flow, each behind the last; in these queues by turns."""
    jobs: list[JobRecord] = []
    for number in range(length):
        before = tuple(job.id for job in jobs[-1:])
        queue = queues[number % len(queues)] if queues else env.queue
        jobs.append(env.job(flow_id=env.name("flow"), queue=queue, depends_on=before))
    await env.put(*jobs)
    return jobs


async def cancel(env: Environment, *jobs: JobRecord, at: float = 1) -> None:
    assert await env.driver.cancel([job.id for job in jobs], env.at(at)) == [None] * len(jobs)


async def go_on(env: Environment, at: float) -> None:
    """As a worker does: until a prune had less to do than it might."""
    while await env.driver.prune(env.at(at), 500) >= 500:
        pass


async def requeue(env: Environment, *jobs: JobRecord, at: float = 2) -> None:
    assert await env.driver.requeue([job.id for job in jobs], env.at(at)) == [None] * len(jobs)


@case(CASCADE)
async def by_the_handler(env: Environment) -> None:
    jobs = await chain(env, 3)
    await env.drop(await env.take_one(), at=1)
    infos = [await env.info(job, 1) for job in jobs]
    assert [str(info.state) for info in infos] == ["cancelled"] * 3
    assert [info.job.reason for info in infos] == ["unwanted", *[DEPENDENCY_CANCELLED_REASON] * 2]
    assert [info.job.finished_at for info in infos] == [env.at(1)] * 3
    assert (await env.driver.flow(env.name("flow"), env.at(1))).status == "cancelled"


@case(CASCADE)
async def by_an_operator(env: Environment) -> None:
    """Over queues, from the middle of a chain; what is before it goes on."""
    jobs = await chain(env, 4, [env.q("a"), env.q("b")])
    await cancel(env, jobs[1])
    assert await env.states(*jobs, at=1) == ["ready", "cancelled", "cancelled", "cancelled"]
    await env.ack(await env.take_one(at=2, queues=[env.q("a")]), at=2)
    assert await env.take(at=2, queues=[env.q("a"), env.q("b")]) == []
    assert (await env.driver.flow(env.name("flow"), env.at(2))).status == "cancelled"


@case(CASCADE)
async def what_else_it_waits_for_does_not_matter(env: Environment) -> None:
    """A join is cancelled with the first of its members that is; the others still run."""
    flow = env.name("flow")
    members = await env.add_many(3, flow_id=flow)
    join = await env.add(flow_id=flow, depends_on=tuple(job.id for job in members))
    await cancel(env, members[1])
    assert await env.states(*members, join, at=1) == ["ready", "cancelled", "ready", "cancelled"]
    assert await env.drain(at=2) == [members[0].id, members[2].id]
    assert await env.state(join, 3) == "cancelled"


@case(CASCADE, BACK)
async def outside_of_the_flow(env: Environment) -> None:
    """In another flow, or in none: it stays blocked, whatever the job before it is in."""
    inside = await env.add(flow_id=env.name("flow"))
    free = await env.add()
    behind = [
        await env.add(depends_on=(inside.id,)),
        await env.add(depends_on=(inside.id,), flow_id=env.name("other")),
        await env.add(depends_on=(free.id,)),
        await env.add(depends_on=(free.id,), flow_id=env.name("flow")),
    ]
    await cancel(env, inside, free)
    assert await env.states(*behind, at=1) == ["blocked"] * 4
    await requeue(env, inside, free)
    assert sorted(await env.drain(at=2)) == sorted([inside.id, free.id, *(job.id for job in behind)])


@case(CASCADE)
async def its_flow_is_pruned(env: Environment) -> None:
    """Nothing of it is open any more."""
    await chain(env, 3)
    await env.drop(await env.take_one(), at=1)
    assert await env.driver.prune(env.at(2), 100) == 3


@case(LATER, BACK)
async def stored_later(env: Environment) -> None:
    """In one call, in any order; the job in another flow stays blocked."""
    (first,) = await chain(env, 1)
    await cancel(env, first)
    flow = env.name("flow")
    second = env.job(flow_id=flow, depends_on=(first.id,))
    third = env.job(flow_id=flow, depends_on=(second.id,))
    other = env.job(flow_id=env.name("other"), depends_on=(first.id,))
    await env.put(third, second, other, at=1)
    assert await env.states(first, second, third, other, at=1) == ["cancelled"] * 3 + ["blocked"]
    assert (await env.info(second, 1)).job.reason == DEPENDENCY_CANCELLED_REASON
    await requeue(env, first)
    assert sorted(await env.drain(at=2)) == sorted([first.id, second.id, third.id, other.id])


@case(LATER, BACK)
async def behind_an_heir(env: Environment) -> None:
    """That is cancelled at once, because of what it depends on, or later."""
    flow, queues = env.name("flow"), [env.q("a"), env.q("b")]
    other = await env.add(flow_id=flow, queue=queues[1], run_at=env.at(50))
    jobs = await chain(env, 3, queues)
    await cancel(env, other)
    heir = env.job(flow_id=flow, queue=queues[0], depends_on=(other.id,))
    await env.done(Ack((await env.take_one(at=2, queues=queues)).lease, None, (heir,), heir.id), at=2)
    assert await env.states(heir, *jobs, at=2) == ["cancelled", "done", "cancelled", "cancelled"]
    await requeue(env, other, at=3)
    assert await env.states(heir, *jobs, at=3) == ["blocked", "done", "blocked", "blocked"]
    await cancel(env, heir, at=4)
    late = [env.job(flow_id=flow, queue=queue, depends_on=(jobs[0].id,)) for queue in queues]
    await env.put(*late, at=5)
    assert await env.states(*jobs, *late, at=5) == ["done", "cancelled", "cancelled", "cancelled", "cancelled"]


@case(LATER, BACK)
async def behind_a_known_heir(env: Environment) -> None:
    """A job that a person requeued alone waits on: what it got by the handover can still run."""
    flow = env.name("flow")
    known = await env.add(flow_id=flow, run_at=env.at(50), idempotency_key="key")
    members = await env.add_many(2, flow_id=flow)
    jobs = [await env.add(flow_id=flow, depends_on=(members[0].id,))]
    jobs.append(await env.add(flow_id=flow, depends_on=(jobs[0].id,)))
    alone = await env.add(flow_id=flow, depends_on=(known.id, members[1].id))
    await cancel(env, known)
    await requeue(env, alone)
    first, second = await env.take(2, at=2)
    same, new = env.job(flow_id=flow, idempotency_key="key"), env.job(flow_id=flow)
    await env.done(Ack(first.lease, None, (same,), same.id), at=2)
    await env.done(Ack(second.lease, None, (new,), new.id), at=2)
    assert await env.states(known, *jobs, alone, at=2) == ["cancelled", "cancelled", "cancelled", "blocked"]
    await requeue(env, known, at=3)
    assert await env.states(known, *jobs, alone, at=3) == ["ready", "blocked", "blocked", "blocked"]


@case(BACK)
async def comes_back(env: Environment) -> None:
    jobs = await chain(env, 3, [env.q("a"), env.q("b")])
    await cancel(env, jobs[0])
    await requeue(env, jobs[0])
    assert await env.states(*jobs, at=2) == ["ready", "blocked", "blocked"]
    info = await env.info(jobs[1], 2)
    assert (info.job.reason, info.job.finished_at, info.waiting_for) == ("", None, (jobs[0].id,))
    assert await env.drain(at=3, queues=[env.q("a"), env.q("b")]) == [job.id for job in jobs]


@case(BACK)
async def keeps_its_time(env: Environment) -> None:
    """What comes back is as it was before, whatever the requeued job is given."""
    first = env.job(flow_id=env.name("flow"))
    later = env.job(flow_id=env.name("flow"), depends_on=(first.id,), run_at=env.at(60))
    await env.put(first, later)
    await cancel(env, first)
    assert await env.driver.requeue([first.id], env.at(2), env.at(10)) == [None]
    assert await env.drain(at=20) == [first.id]
    assert await env.state(later, 20) == "scheduled"
    assert await env.drain(at=60) == [later.id]


@case(BACK)
async def not_behind_another(env: Environment) -> None:
    flow = env.name("flow")
    members = await env.add_many(2, flow_id=flow)
    join = await env.add(flow_id=flow, depends_on=tuple(job.id for job in members))
    last = await env.add(flow_id=flow, depends_on=(join.id,))
    await cancel(env, *members)
    await requeue(env, members[0])
    assert await env.states(*members, join, last, at=2) == ["ready", "cancelled", "cancelled", "cancelled"]
    await requeue(env, members[1], at=3)
    assert await env.states(*members, join, last, at=3) == ["ready", "ready", "blocked", "blocked"]


@case(BACK)
async def not_what_was_cancelled_otherwise(env: Environment) -> None:
    """By itself, in the same call as the job before it, or with its flow."""
    jobs = await chain(env, 3)
    await cancel(env, jobs[0], jobs[2])
    await requeue(env, jobs[0])
    assert await env.states(*jobs, at=2) == ["ready", "blocked", "cancelled"]
    await env.driver.cancel_flow(env.name("flow"), env.at(3))
    assert (await env.info(jobs[1], 3)).job.reason == FLOW_CANCELLED_REASON
    await requeue(env, jobs[0], at=4)
    assert await env.states(*jobs, at=4) == ["ready", "cancelled", "cancelled"]


@case(BACK)
async def the_dependent_alone(env: Environment) -> None:
    """It waits for the job before it, which is still cancelled; requeued, that one runs first."""
    jobs = await chain(env, 3)
    await cancel(env, jobs[0])
    await requeue(env, jobs[1])
    assert await env.states(*jobs, at=2) == ["cancelled", "blocked", "blocked"]
    await requeue(env, jobs[0], at=3)
    assert await env.drain(at=3) == [job.id for job in jobs]


@case(SLICES, CASCADE, BACK)
async def many(env: Environment) -> None:
    """Behind one job, and behind those."""
    flow, width = env.name("flow"), MAX_FOLLOWED_JOBS // 2 + 100
    first = env.job(flow_id=flow)
    middle = [env.job(flow_id=flow, depends_on=(first.id,)) for _ in range(width)]
    last = [env.job(flow_id=flow, depends_on=(job.id,)) for job in middle]
    await env.put(first, *middle, *last)
    await env.drop(await env.take_one(lease=600), at=1)
    assert (await env.counts(1))["cancelled"] > MAX_FOLLOWED_JOBS
    await go_on(env, 1)
    assert await env.counts(1) == {"cancelled": 1 + 2 * width}
    await requeue(env, first)
    assert (await env.counts(2))["blocked"] >= MAX_FOLLOWED_JOBS
    await go_on(env, 1)
    assert await env.counts(2) == {"ready": 1, "blocked": 2 * width}


@case(SLICES, CASCADE, BACK)
async def changed_halfway(env: Environment) -> None:
    """Behind two jobs, which are cancelled, requeued and done before all have followed the last change."""
    flow, width = env.name("flow"), MAX_FOLLOWED_JOBS + 100
    one, other = causes = [env.job(flow_id=flow, queue=env.q("before")) for _ in range(2)]
    await env.put(*(env.job(flow_id=flow, depends_on=(one.id, other.id)) for _ in range(width)), *causes)

    async def follow(at: float, **expected: int) -> None:
        await go_on(env, at)
        assert await env.counts(at) == expected, at

    await cancel(env, one)
    await follow(1, cancelled=width)
    await requeue(env, one)
    await cancel(env, one, at=3)
    await cancel(env, other, at=3)
    await requeue(env, one, at=4)
    await follow(4, cancelled=width)
    await requeue(env, other, at=5)
    await cancel(env, one, at=6)
    await follow(6, cancelled=width)
    await requeue(env, one, at=7)
    assert len(await env.drain(at=8, queues=[env.q("before")], lease=600)) == 2
    await follow(8, ready=width)
