"""Spawn and handover: jobs stored in the transaction of an outcome, and a job replaced by what it spawned."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Ack, Fail, InvalidJob, JobRecord, Reserved, replace

SPAWN = (
    "`Ack.spawn` stores jobs in the same transaction, checked as by enqueue; an invalid one refuses the "
    "outcome with `InvalidJob`."
)
ON_SELF = "Spawned jobs may depend on the job being settled."
HANDOVER = (
    "A `handover` names a spawned job: wherever the acked job stood in a `depends_on`, that id stands now, in the same "
    "position, and the acked record notes it in `handed_to`."
)
NEW_ON_OLD = "A new dependency on a job that was handed over is a dependency on the one that took its place."
TO_REPLACED = (
    "A handover to a job that is known and was itself handed over is one to the job that took its place; to one whose "
    "place the acked job has, it is `InvalidJob`."
)
FAIL_SPAWN = "`Fail.spawn` stores jobs in the transaction that puts the job into the DLQ."
RESULTS = (
    "`results(ids)` returns by id what each job that is done returned, None if that was None, and follows `handed_to`."
)
LEFT_OUT = "`results` leaves out ids whose jobs are not done, and ids without a record."
BOUNDS = (
    "A job has at most 20,000 dependencies, a spawn at most 10,000 jobs, and an enqueue at most 50,000; more is "
    "`InvalidJob`."
)


async def hand_over(env: Environment, held: Reserved, *spawn: JobRecord, at: float = 0) -> None:
    """Ack with these jobs, the last of which takes the place."""
    await env.done(Ack(held.lease, None, spawn, spawn[-1].id), at=at)


@case(SPAWN)
async def spawned_jobs_are_stored(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    first = env.job(payload=b"1", idempotency_key="key", metadata={"a": "b"})
    second = env.job(run_at=env.at(60), queue=env.q("other"))
    third = env.job(depends_on=(second.id, first.id))
    await env.done(Ack(held.lease, b"result", (third, first, second)), at=1)
    assert await env.states(held, first, second, third, at=1) == ["done", "ready", "scheduled", "blocked"]
    assert (await env.info(first, 1)).job == first
    assert (await env.info(held, 1)).job.result == b"result"
    assert (await env.info(held, 1)).job.handed_to is None


@case(SPAWN)
async def spawned_jobs_join_at_the_ack(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    before = await env.add(at=5)
    one, two = env.job(), env.job()
    await env.done(Ack(held.lease, None, (two, one)), at=5)
    after = await env.add(at=5)
    assert await env.drain(at=5) == [before.id, two.id, one.id, after.id]


@case(SPAWN)
async def spawned_job_that_is_known(env: Environment) -> None:
    """By id or key: nothing is written, the ack is accepted."""
    await env.add()
    held = await env.take_one()
    known = await env.add(idempotency_key="key", payload=b"known")
    child = env.job(idempotency_key="key")
    grandchild = env.job(depends_on=(child.id,))
    await env.done(Ack(held.lease, None, (replace(known, payload=b"x"), child, grandchild)), at=1)
    assert await env.gone(child)
    assert (await env.info(known, 1)).job == known
    assert (await env.info(grandchild, 1)).waiting_for == (known.id,)


@case(SPAWN, "One refused outcome never spoils the rest of a batch.")
async def invalid_spawn(env: Environment) -> None:
    """Whatever is invalid: the job stays inflight, nothing is stored, and the rest of the batch is settled."""
    await env.add_many(3)
    first, bad, last = await env.take(3)
    good = env.job()
    loop = env.name("loop")
    for spawn in (
        (good, env.job(type="")),
        (good, env.job(depends_on=(env.name("unknown"),))),
        (good, env.job(id=loop, depends_on=(loop,))),
        (good, env.job(payload=b"x" * (1024 * 1024 + 1))),
    ):
        answers = await env.settle(Ack(first.lease), Ack(bad.lease, b"x", spawn), Ack(last.lease), at=1)
        assert refusals(answers) == ["ok", "InvalidJob", "ok"]
        assert await env.states(first, bad, last, at=1) == ["done", "inflight", "done"]
        assert await env.gone(good)
    await env.done(Ack(bad.lease, b"y", (good,)), at=2)
    assert await env.driver.results([bad.job.id]) == {bad.job.id: b"y"}


@case(SPAWN)
async def refused_outcome_spawns_nothing(env: Environment) -> None:
    await env.add_many(3)
    expired = await env.take_one(lease=1)
    cancelled, failed = await env.take(2)
    await env.driver.cancel([cancelled.job.id], env.at(1))
    await env.fail(failed, at=1)
    child = env.job()
    answers = await env.settle(*(Ack(held.lease, None, (child,)) for held in (expired, cancelled, failed)), at=1)
    assert refusals(answers) == ["LeaseExpired", "JobNotInflight", "JobNotInflight"]
    assert await env.gone(child)


@case(ON_SELF)
async def spawn_depends_on_the_acked_job(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    child = env.job(depends_on=(held.job.id,))
    other = env.job(depends_on=(child.id, held.job.id))
    await env.done(Ack(held.lease, None, (child, other)), at=1)
    assert await env.states(child, other, at=1) == ["ready", "blocked"]
    assert (await env.info(child, 1)).job.depends_on == (held.job.id,)
    assert await env.drain(at=1) == [child.id, other.id]


@case(FAIL_SPAWN, ON_SELF)
async def spawn_of_a_failed_job(env: Environment) -> None:
    """A failure handler runs at once; what depends on the dead job waits for its requeue."""
    await env.add()
    held = await env.take_one()
    handler, child = env.job(), env.job(depends_on=(held.job.id,))
    await env.done(Fail(held.lease, "dead", 1, env.at(1), "", (handler, child)), at=1)
    assert await env.states(held, handler, child, at=1) == ["dlq", "ready", "blocked"]
    await env.driver.requeue([held.job.id], env.at(2))
    assert await env.drain(at=2) == [handler.id, held.job.id, child.id]


@case(FAIL_SPAWN)
async def invalid_spawn_of_a_failed_job(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    await env.refused(Fail(held.lease, "dead", 1, env.at(1), "", (env.job(type=""),)), InvalidJob, at=1)
    record = await env.info(held, 1)
    assert (record.state, record.job.attempts, record.job.reason) == ("inflight", 0, "")


@case(FAIL_SPAWN, (
    "Repeating an outcome of the same kind with the token that settled the job returns None and "
    "changes nothing, until the job is reserved again."
))  # fmt: skip
async def repeated_fail_spawns_once(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    handler = env.job()
    for spawn in ((handler,), (handler,), (env.job(),)):
        await env.done(Fail(held.lease, "dead", 1, env.at(1), "", spawn), at=1)
    assert await env.all_ids(1) == [held.job.id, handler.id]


@case(HANDOVER, RESULTS)
async def handover(env: Environment) -> None:
    """A handler that returns a workflow is replaced by it: its dependents wait for the workflow's end."""
    first, other = await env.add_many(2)
    waiting = await env.add(depends_on=(other.id, first.id))
    held, _ = await env.take(2)
    begin, end = env.job(), env.job()
    end = replace(end, depends_on=(begin.id,))
    await hand_over(env, held, begin, end, at=1)
    info = await env.info(waiting, 1)
    assert (info.state, info.job.depends_on, info.waiting_for) == ("blocked", (other.id, end.id), (other.id, end.id))
    acked = await env.info(first, 1)
    assert (acked.state, acked.job.handed_to) == ("done", end.id)
    assert await env.driver.results([first.id]) == {}
    await env.ack(_, at=1)
    await env.ack(await env.take_one(at=1), at=1)
    assert await env.state(waiting, 1) == "blocked"
    await env.ack(await env.take_one(at=1), at=1, result=b"the end")
    assert await env.driver.results([first.id, end.id]) == {first.id: b"the end", end.id: b"the end"}
    assert await env.taken_ids(at=1) == [waiting.id]


@case(HANDOVER)
async def handover_keeps_every_position(env: Environment) -> None:
    first, second, third = await env.add_many(3)
    ids = (second.id, first.id, third.id, first.id, second.id)
    waiting = await env.add(depends_on=ids)
    held = await env.take_one()
    end = env.job()
    await hand_over(env, held, end, at=1)
    expected = tuple(end.id if id == first.id else id for id in ids)
    assert (await env.info(waiting, 1)).job.depends_on == expected
    assert await env.drain(at=1) == [second.id, third.id, end.id, waiting.id]


@case(HANDOVER)
async def handover_to_all_dependents(env: Environment) -> None:
    """Blocked ones, also in other queues; cancelled ones too, for a later requeue."""
    first = await env.add()
    here = await env.add(depends_on=(first.id,))
    there = await env.add(depends_on=(first.id,), queue=env.q("other"))
    cancelled = await env.add(depends_on=(first.id,))
    await env.driver.cancel([cancelled.id], env.now)
    end = env.job()
    await hand_over(env, await env.take_one(), end, at=1)
    assert [(await env.info(job, 1)).job.depends_on for job in (here, there, cancelled)] == [(end.id,)] * 3
    await env.driver.requeue([cancelled.id], env.at(2))
    assert await env.states(here, there, cancelled, at=2) == ["blocked"] * 3
    await env.ack(await env.take_one(at=2), at=2)
    assert await env.states(here, there, cancelled, at=2) == ["ready"] * 3


@case(HANDOVER, RESULTS)
async def chain_of_handovers(env: Environment) -> None:
    first = await env.add()
    waiting = await env.add(depends_on=(first.id,))
    ends = [env.job() for _ in range(3)]
    for end in ends:
        await hand_over(env, await env.take_one(), end)
    assert (await env.info(waiting)).job.depends_on == (ends[2].id,)
    assert await env.driver.results([first.id, ends[0].id]) == {}
    await env.ack(await env.take_one(), result=b"end")
    ids = [first.id, *(end.id for end in ends)]
    assert await env.driver.results(ids) == dict.fromkeys(ids, b"end")
    assert await env.taken_ids() == [waiting.id]


@case(RESULTS, LEFT_OUT)
async def result_of_a_job_whose_heir_is_gone(env: Environment) -> None:
    """What the job itself returned is not the result that stood for it."""
    first = await env.add()
    middle, end = env.job(), env.job()
    for heir in (middle, end):
        await hand_over(env, await env.take_one(), heir)
    await env.ack(await env.take_one(), result=b"end")
    assert refusals(await env.driver.delete([end.id])) == ["ok"]
    assert await env.driver.results([first.id, middle.id, end.id]) == {}
    assert refusals(await env.driver.delete([middle.id])) == ["ok"]
    assert await env.driver.results([middle.id, first.id]) == {}


@case(NEW_ON_OLD)
async def new_dependency_after_a_handover(env: Environment) -> None:
    first = await env.add()
    one, two = env.job(), env.job()
    await hand_over(env, await env.take_one(), one)
    await hand_over(env, await env.take_one(), two)
    late = await env.add(depends_on=(first.id,))
    info = await env.info(late)
    assert (info.state, info.waiting_for, info.job.depends_on) == ("blocked", (two.id,), (two.id,))
    assert await env.drain() == [two.id, late.id]
    assert await env.state(await env.add(depends_on=(first.id, one.id))) == "ready"


@case(NEW_ON_OLD, SPAWN)
async def spawned_dependency_after_a_handover(env: Environment) -> None:
    first = await env.add()
    other = await env.add()
    end = env.job(run_at=env.at(50))
    held, spawner = await env.take(2)
    await hand_over(env, held, end)
    child = env.job(depends_on=(first.id,))
    await env.done(Ack(spawner.lease, None, (child,)))
    assert (await env.info(child)).waiting_for == (end.id,)
    assert await env.state(other) == "done"


@case(HANDOVER)
async def handover_without_dependents(env: Environment) -> None:
    first = await env.add()
    end = env.job()
    await hand_over(env, await env.take_one(), end)
    assert (await env.info(first)).job.handed_to == end.id
    assert await env.drain() == [end.id]


@case(TO_REPLACED, RESULTS)
async def handover_to_one_that_was_handed_over(env: Environment) -> None:
    """Known by its key or by its id, in this queue or in another, over one handover or two."""
    waiting = []
    for number, place in enumerate((env.queue, env.q("other"), env.q("third"))):
        known = await env.add(queue=place, idempotency_key="key")
        middle = env.job(queue=env.q(f"middle {number}"))
        end = env.job(queue=env.q(f"end {number}"))
        await hand_over(env, await env.take_one(queues=[place]), middle)
        if number:
            await hand_over(env, await env.take_one(queues=[middle.queue]), end)
        last = end if number else middle
        for again in (env.job(queue=place, idempotency_key="key"), known):
            replaced = await env.add()
            late = await env.add(depends_on=(replaced.id,), queue=env.q("late"))
            await hand_over(env, await env.take_one(), again)
            info = await env.info(late)
            assert (info.state, info.job.depends_on, info.waiting_for) == ("blocked", (last.id,), (last.id,))
            assert (await env.info(replaced)).job.handed_to == last.id
            waiting.append((replaced, late))
        await env.ack(await env.take_one(queues=[last.queue]), result=b"the end")
        assert await env.states(*(late for _, late in waiting[-2:])) == ["ready", "ready"]
        assert await env.driver.results([waiting[-1][0].id]) == {waiting[-1][0].id: b"the end"}
    assert await env.taken_ids(queues=[env.q("late")]) == [late.id for _, late in waiting]


@case(TO_REPLACED)
async def handover_to_one_whose_successor_is_gone(env: Environment) -> None:
    """Then it counts as done, and its dependents are released."""
    known, end = await env.add(idempotency_key="key"), env.job()
    await hand_over(env, await env.take_one(), end)
    await env.ack(await env.take_one())
    assert await env.driver.delete([end.id]) == [None]
    replaced = await env.add()
    late = await env.add(depends_on=(replaced.id,))
    await hand_over(env, await env.take_one(), env.job(idempotency_key="key"))
    assert ((await env.info(replaced)).job.handed_to, await env.state(late)) == (known.id, "ready")


@case(TO_REPLACED)
async def handover_to_one_whose_place_the_job_has(env: Environment) -> None:
    known, end = await env.add(), env.job()
    await hand_over(env, await env.take_one(), end)
    late = await env.add(depends_on=(known.id,))
    held = await env.take_one()
    await env.refused(Ack(held.lease, None, (known,), known.id), InvalidJob)
    assert await env.states(held, late) == ["inflight", "blocked"]
    await env.ack(held)
    assert await env.taken_ids() == [late.id]


@case(TO_REPLACED)
async def handover_to_one_whose_successor_waits_for_the_job(env: Environment) -> None:
    """That would be a cycle."""
    replaced = await env.add()
    known = await env.add(idempotency_key="key", queue=env.q("other"))
    late = env.job(depends_on=(replaced.id,), queue=env.q("other"))
    await hand_over(env, await env.take_one(queues=[known.queue]), late)
    held = await env.take_one()
    child = env.job(idempotency_key="key", queue=env.q("other"))
    await env.refused(Ack(held.lease, None, (child,), child.id), InvalidJob)
    assert await env.states(held, late) == ["inflight", "blocked"]


@case(HANDOVER, BOUNDS)
async def number_of_spawned_jobs(env: Environment) -> None:
    """Ten thousand places filled with the same id are within bounds, and one job."""
    await env.add()
    held = await env.take_one()
    child = env.job()
    await env.refused(Ack(held.lease, None, (child,) * 10_001), InvalidJob)
    assert await env.gone(child)
    await env.done(Ack(held.lease, None, (child,) * 10_000))
    assert await env.taken_ids() == [child.id]
