"""Flows: dependencies between jobs, and when a blocked job is released."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Enqueued, InvalidJob, JobRecord

BLOCKED = (
    "A job with open dependencies is blocked, and leaves that state in the same transaction that "
    "settles the last of them."
)
RELEASES = "Ack releases dependents in the same transaction."
ANY_ORDER = "The jobs of one call may name each other in any order."
ALREADY = "A dependency that is already done counts as done."
REFUSED = "An unknown dependency, or a cycle, is `InvalidJob`."
BY_KEY = (
    "A dependency on a job of the same call that turned out to be known by its key is a dependency on the known one."
)
WAITING = "`waiting_for` names the dependencies that are not done, in their order."
STAY = "A dead dependency leaves its dependents blocked; requeueing it resumes the flow."


async def invalid(env: Environment, *jobs: JobRecord) -> None:
    """The call is refused, and nothing of it is stored."""
    try:
        await env.put(*jobs)
    except InvalidJob:
        pass
    else:
        raise AssertionError("an invalid call was taken")
    for job in jobs:
        assert await env.gone(job)


@case(BLOCKED, RELEASES)
async def chain(env: Environment) -> None:
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    third = await env.add(depends_on=(second.id,))
    assert await env.states(first, second, third) == ["ready", "blocked", "blocked"]
    assert await env.drain() == [first.id, second.id, third.id]
    assert await env.states(first, second, third) == ["done", "done", "done"]


@case(BLOCKED, RELEASES, WAITING)
async def join_waits_for_the_last(env: Environment) -> None:
    jobs = await env.add_many(4)
    join = await env.add(depends_on=tuple(job.id for job in jobs))
    held = {item.job.id: item for item in await env.take()}
    for done, job in enumerate([jobs[2], jobs[0], jobs[3]], start=1):
        await env.ack(held[job.id], at=done)
        assert await env.state(join, done) == "blocked"
        assert await env.take(at=done) == []
    assert (await env.info(join, 3)).waiting_for == (jobs[1].id,)
    await env.ack(held[jobs[1].id], at=4)
    assert (await env.info(join, 4)).waiting_for == ()
    assert await env.taken_ids(at=4) == [join.id]


@case(BLOCKED, ANY_ORDER)
async def diamond_in_any_order(env: Environment) -> None:
    top, left, right, bottom = (env.job() for _ in range(4))
    left = env.job(depends_on=(top.id,))
    right = env.job(depends_on=(top.id,))
    bottom = env.job(depends_on=(right.id, left.id))
    await env.put(bottom, right, top, left)
    assert await env.states(top, left, right, bottom) == ["ready", "blocked", "blocked", "blocked"]
    order = await env.drain()
    assert (order[0], {*order[1:3]}, order[3:]) == (top.id, {left.id, right.id}, [bottom.id])


@case(BLOCKED)
async def only_ack_releases(env: Environment) -> None:
    """Reserve, extension, retry, expiry and release of the dependency leave the dependent blocked."""
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    worker = env.name("w")
    held = await env.take_one(worker=worker)
    await env.extend(held, at=1)
    await env.retry(held, at=2)
    await env.take_one(at=3, lease=5, worker=worker)
    await env.take_one(at=8, worker=worker)
    await env.driver.release(worker, env.at(9))
    assert await env.state(second, 10) == "blocked"
    await env.ack(await env.take_one(at=10), at=11)
    assert await env.state(second, 11) == "ready"


@case(BLOCKED)
async def stale_ack_releases_nothing(env: Environment) -> None:
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    zombie = await env.take_one(lease=5)
    await env.refused_ack(zombie, at=5)
    await env.take_one(at=6)
    await env.refused_ack(zombie, at=7)
    assert await env.state(second, 7) == "blocked"


@case(BLOCKED)
async def dependency_named_twice(env: Environment) -> None:
    first, other = await env.add_many(2)
    job = await env.add(depends_on=(first.id, other.id, first.id))
    await env.ack(await env.take_one())
    assert await env.state(job) == "blocked"
    await env.ack(await env.take_one())
    assert await env.state(job) == "ready"
    assert (await env.info(job)).job.depends_on == (first.id, other.id, first.id)


@case(BLOCKED)
async def over_queues(env: Environment) -> None:
    first = await env.add(queue=env.q("a"))
    second = await env.add(queue=env.q("b"), depends_on=(first.id,))
    assert await env.take(queues=[env.q("b")]) == []
    await env.ack(await env.take_one(queues=[env.q("a")]))
    assert await env.taken_ids(queues=[env.q("b")]) == [second.id]


@case(BLOCKED)
async def wide(env: Environment) -> None:
    """One job releases two hundred, two hundred release one."""
    first = env.job()
    middle = [env.job(depends_on=(first.id,)) for _ in range(200)]
    last = env.job(depends_on=tuple(job.id for job in middle))
    await env.put(last, *middle, first)
    await env.ack(await env.take_one())
    taken = await env.take(300)
    assert len(taken) == 200
    for held in taken:
        assert await env.state(last) == "blocked"
        await env.ack(held)
    assert await env.taken_ids() == [last.id]


@case(ALREADY, WAITING)
async def already_done(env: Environment) -> None:
    done = await env.finished()
    free = await env.add(depends_on=(done.id,))
    assert await env.state(free) == "ready"
    half = await env.add(depends_on=(done.id, free.id))
    assert (await env.info(half)).waiting_for == (free.id,)
    assert (await env.info(half)).job.depends_on == (done.id, free.id)
    assert await env.drain() == [free.id, half.id]


@case("A job that is unblocked with a `run_at` in the future is scheduled.")
async def released_and_scheduled(env: Environment) -> None:
    first = await env.add()
    later = await env.add(depends_on=(first.id,), run_at=env.at(60))
    past = await env.add(depends_on=(first.id,), run_at=env.at(1))
    assert await env.states(later, past, at=100) == ["blocked", "blocked"]
    await env.ack(await env.take_one(at=2), at=2)
    assert await env.states(later, past, at=59.999) == ["scheduled", "ready"]
    assert (await env.info(later, 2)).job.run_at == env.at(60)
    assert await env.drain(at=60) == [past.id, later.id]


@case(REFUSED)
async def unknown_dependency(env: Environment) -> None:
    known = await env.add()
    await invalid(env, env.job(), env.job(depends_on=(known.id, env.name("unknown"))))


@case(REFUSED)
async def deleted_dependency(env: Environment) -> None:
    job = await env.add()
    await env.driver.delete([job.id])
    await invalid(env, env.job(depends_on=(job.id,)))


@case(REFUSED)
async def cycles(env: Environment) -> None:
    """Of one, two and three jobs, and one behind jobs that are in order."""
    ids = [env.name(f"c{number}") for number in range(4)]
    await invalid(env, env.job(id=ids[0], depends_on=(ids[0],)))
    await invalid(env, env.job(id=ids[0], depends_on=(ids[1],)), env.job(id=ids[1], depends_on=(ids[0],)))
    ring = [env.job(id=ids[number], depends_on=(ids[(number + 1) % 3],)) for number in range(3)]
    await invalid(env, *ring)
    await invalid(env, env.job(), *ring, env.job(id=ids[3], depends_on=(ids[0],)))


@case(REFUSED)
async def long_chain_is_not_a_cycle(env: Environment) -> None:
    """Deeper than a recursion would go."""
    jobs = [env.job()]
    for _ in range(2000):
        jobs.append(env.job(depends_on=(jobs[-1].id,)))
    await env.put(*jobs[::-1])
    assert await env.counts() == {"ready": 1, "blocked": 2000}


@case(REFUSED, BY_KEY)
async def cycle_through_a_key(env: Environment) -> None:
    """The second job of the call is the first one, by its key: so the first waits for itself."""
    first = env.job(id=env.name("a"), idempotency_key="key", depends_on=(env.name("b"),))
    await invalid(env, first, env.job(id=env.name("b"), idempotency_key="key"))


@case(BY_KEY)
async def dependency_known_by_its_key(env: Environment) -> None:
    known = await env.add(idempotency_key="key")
    shadow = env.job(idempotency_key="key")
    other = env.job()
    child = env.job(depends_on=(other.id, shadow.id))
    assert await env.put(child, shadow, other) == [
        Enqueued(child.id, False),
        Enqueued(known.id, True),
        Enqueued(other.id, False),
    ]
    info = await env.info(child)
    assert info.job.depends_on == (other.id, known.id)
    assert info.waiting_for == (other.id, known.id)
    assert await env.drain() == [known.id, other.id, child.id]


@case(BY_KEY)
async def dependency_known_by_its_key_and_done(env: Environment) -> None:
    known = await env.finished(idempotency_key="key")
    shadow = env.job(idempotency_key="key")
    child = env.job(depends_on=(shadow.id,))
    await env.put(shadow, child)
    assert await env.state(child) == "ready"
    assert (await env.info(child)).job.depends_on == (known.id,)


@case(BY_KEY, STAY, WAITING)
async def dependency_known_by_its_key_that_never_comes(env: Environment) -> None:
    """Dead or cancelled already, and in another flow: the new flow shows what it waits for."""
    for name in ("dead", "cancelled"):
        queue, flow_id = env.q(name), env.name(f"flow of {name}")
        known = await env.add(queue=queue, idempotency_key="key", flow_id=env.name(f"first of {name}"))
        if name == "dead":
            await env.fail(await env.take_one(queues=[queue]))
        else:
            await env.driver.cancel([known.id], env.now)
        shadow = env.job(queue=queue, idempotency_key="key", flow_id=flow_id)
        child = env.job(queue=queue, depends_on=(shadow.id,), flow_id=flow_id)
        assert await env.put(shadow, child) == [Enqueued(known.id, True), Enqueued(child.id, False)]
        info = await env.driver.flow(flow_id, env.now)
        assert [(node.job.id, node.state, node.waiting_for) for node in info.nodes] == [
            (child.id, "blocked", (known.id,))
        ]
        assert info.edges == ((known.id, child.id),)
        assert (await env.info(known)).state == ("dlq" if name == "dead" else "cancelled")
        await env.driver.requeue([known.id], env.at(1))
        assert await env.drain(at=1, queues=[queue]) == [known.id, child.id]


@case(BY_KEY)
async def dependency_on_the_second_of_two_with_one_key(env: Environment) -> None:
    first, second = env.job(idempotency_key="key"), env.job(idempotency_key="key")
    child = env.job(depends_on=(second.id,))
    await env.put(first, second, child)
    assert (await env.info(child)).waiting_for == (first.id,)
    assert await env.drain() == [first.id, child.id]


@case(STAY)
async def dead_dependency(env: Environment) -> None:
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    await env.fail(await env.take_one())
    late = await env.add(depends_on=(first.id,))
    assert await env.states(second, late) == ["blocked", "blocked"]
    assert (await env.info(second)).waiting_for == (first.id,)
    await env.driver.requeue([first.id], env.at(1))
    order = await env.drain(at=1)
    assert (order[0], {*order[1:]}) == (first.id, {second.id, late.id})


@case(BLOCKED)
async def cancelled_dependency(env: Environment) -> None:
    """By cancel, or by its handler, outside of a flow."""
    for name in ("admin", "handler"):
        queue = env.q(name)
        first = await env.add(queue=queue)
        second = await env.add(queue=queue, depends_on=(first.id,))
        if name == "admin":
            await env.driver.cancel([first.id], env.now)
        else:
            await env.drop(await env.take_one(queues=[queue]))
        assert await env.state(second) == "blocked"
        assert await env.take(queues=[queue]) == []
        await env.driver.requeue([first.id], env.at(1))
        assert await env.drain(at=1, queues=[queue]) == [first.id, second.id]


@case(WAITING)
async def waiting_for_in_order(env: Environment) -> None:
    jobs = await env.add_many(4)
    join = await env.add(depends_on=(jobs[3].id, jobs[0].id, jobs[2].id, jobs[1].id))
    held = {item.job.id: item for item in await env.take()}
    assert (await env.info(join)).waiting_for == (jobs[3].id, jobs[0].id, jobs[2].id, jobs[1].id)
    await env.ack(held[jobs[0].id])
    await env.fail(held[jobs[2].id])
    await env.driver.cancel([jobs[1].id], env.now)
    assert (await env.info(join)).waiting_for == (jobs[3].id, jobs[2].id, jobs[1].id)
    assert (await env.driver.list(now=env.now, queue=env.queue, state="blocked")).items[0].waiting_for == (
        jobs[3].id,
        jobs[2].id,
        jobs[1].id,
    )


@case(
    "A job has at most 20,000 dependencies, a spawn at most 10,000 jobs, and an enqueue at most 50,000; more is "
    "`InvalidJob`."
)
async def number_of_dependencies(env: Environment) -> None:
    first = await env.add()
    await invalid(env, env.job(depends_on=(first.id,) * 20_001))
    many = await env.add(depends_on=(first.id,) * 20_000)
    await env.ack(await env.take_one())
    assert await env.state(many) == "ready"


@case(BLOCKED, "A requeued job with open dependencies is blocked; a dependency whose record is gone is not open.")
async def cancelled_dependent_stays_cancelled(env: Environment) -> None:
    """The ack of its last dependency does not wake a job that was cancelled meanwhile."""
    first = await env.add()
    second = await env.add(depends_on=(first.id,))
    held = await env.take_one()
    await env.driver.cancel([second.id], env.at(1))
    await env.ack(held, at=2)
    assert await env.state(second, 2) == "cancelled"
    await env.driver.requeue([second.id], env.at(3))
    assert await env.taken_ids(at=3) == [second.id]
