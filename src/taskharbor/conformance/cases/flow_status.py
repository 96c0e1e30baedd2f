"""Flows as a whole: status, nodes and edges, cancelling, and new jobs in a cancelled flow."""

from __future__ import annotations

import asyncio

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.drivers import Ack, Enqueued, Fail, FlowInfo, JobNotFound, LeaseExpired
from taskharbor.drivers.slices import MAX_CHANGED_JOBS

STATUS = (
    "A flow is failed if any of its jobs is in the DLQ; else cancelled if any is cancelled; else "
    "succeeded if all are done; else running."
)
NODES = (
    "`flow(flow_id, now)` has the jobs in the order of their ids, and an edge (dependency, dependent) "
    "for each place in a `depends_on`."
)
UPDATED = (
    "A flow was created when its oldest job was, and updated at the newest `created_at`, `failed_at` or "
    "`finished_at` of its jobs."
)
CANCEL = (
    "`cancel_flow` cancels what is not terminal, returns the number of these jobs, and sets a flag: "
    "what is enqueued or spawned into a cancelled flow is stored cancelled."
)
UNFLAG = "Requeueing a job of a cancelled flow takes the flag away."
FORGOTTEN = (
    "The flag goes with the last record of its flow, deleted or pruned: a job enqueued into that flow id afterwards "
    "begins a new flow, and runs."
)


async def flow(env: Environment, at: float = 0) -> FlowInfo:
    return await env.driver.flow(env.name("flow"), env.at(at))


@case(STATUS)
async def status(env: Environment) -> None:
    first, second, third = await env.add_many(3, flow_id=env.name("flow"))
    await env.add(flow_id=env.name("other"), queue=env.q("other"))
    seen = [(await flow(env)).status]
    held = await env.take()
    seen.append((await flow(env)).status)
    await env.ack(held[0])
    seen.append((await flow(env)).status)
    await env.drop(held[1])
    seen.append((await flow(env)).status)
    await env.fail(held[2])
    seen.append((await flow(env)).status)
    await env.driver.requeue([third.id], env.at(1))
    seen.append((await flow(env)).status)
    await env.driver.requeue([second.id], env.at(1))
    seen.append((await flow(env)).status)
    await env.drain(at=1)
    seen.append((await flow(env)).status)
    assert seen == ["running", "running", "running", "cancelled", "failed", "cancelled", "running", "succeeded"]
    assert first.id in ids_of((await flow(env)).nodes)


@case(STATUS)
async def blocked_and_scheduled_are_running(env: Environment) -> None:
    done = await env.finished(flow_id=env.name("flow"))
    assert (await flow(env)).status == "succeeded"
    later = await env.add(flow_id=env.name("flow"), run_at=env.at(60))
    assert (await flow(env)).status == "running"
    await env.add(flow_id=env.name("flow"), depends_on=(later.id, done.id))
    assert (await flow(env)).status == "running"


@case(NODES)
async def nodes_and_edges(env: Environment) -> None:
    """In the order of ids, over all queues; an edge for each dependency, also to a job outside."""
    outside = await env.add()
    a, b, c = (env.job(flow_id=env.name("flow")) for _ in range(3))
    b = env.job(id=b.id, flow_id=env.name("flow"), depends_on=(c.id, outside.id), queue=env.q("other"))
    a = env.job(id=a.id, flow_id=env.name("flow"), depends_on=(c.id, b.id, c.id))
    await env.put(c, a, b)
    found = await flow(env)
    assert found.id == env.name("flow")
    assert ids_of(found.nodes) == [a.id, b.id, c.id]
    expected = [(c.id, a.id), (b.id, a.id), (c.id, a.id), (c.id, b.id), (outside.id, b.id)]
    assert sorted(found.edges) == sorted(expected)
    assert [node.state for node in found.nodes] == ["blocked", "blocked", "ready"]
    assert found.nodes == tuple([await env.info(job) for job in (a, b, c)])


@case(NODES, "An unknown id is `JobNotFound`; a wrong state is `WrongState`, and nothing is changed.")
async def unknown_flow(env: Environment) -> None:
    try:
        await env.driver.flow(env.name("unknown"), env.now)
    except JobNotFound:
        return
    raise AssertionError("a flow that was never enqueued was found")


@case(UPDATED)
async def created_and_updated(env: Environment) -> None:
    name = env.name("flow")
    await env.add(flow_id=name, created_at=env.at(1), at=10)
    await env.add(flow_id=name, created_at=env.at(-5), at=10)
    await env.add(flow_id=name, created_at=env.at(3), at=10)
    seen = [await flow(env, 10)]
    one, two, three = await env.take(at=11)
    seen.append(await flow(env, 11))
    await env.done(Ack(one.lease), at=12)
    seen.append(await flow(env, 12))
    await env.done(Fail(two.lease, "dead", 1, env.at(20)), at=13)
    seen.append(await flow(env, 13))
    await env.drop(three, at=19)
    seen.append(await flow(env, 19))
    assert [info.created_at for info in seen] == [env.at(-5)] * 5
    assert [info.updated_at for info in seen] == [env.at(3), env.at(3), env.at(12), env.at(20), env.at(20)]


@case(CANCEL)
async def cancel_flow(env: Environment) -> None:
    name = env.name("flow")
    done = await env.finished(flow_id=name)
    dead = await env.dead(flow_id=name)
    running = await env.add(flow_id=name)
    held = await env.take_one()
    ready, later = await env.add(flow_id=name), await env.add(flow_id=name, run_at=env.at(60), queue=env.q("other"))
    blocked = await env.add(flow_id=name, depends_on=(later.id,))
    outside = await env.add()
    assert await env.driver.cancel_flow(name, env.at(1)) == 4
    states = await env.states(done, dead, running, ready, later, blocked, outside, at=1)
    assert states == ["done", "dlq", "cancelled", "cancelled", "cancelled", "cancelled", "ready"]
    assert (await env.info(ready, 1)).job.finished_at == env.at(1)
    assert (await env.info(ready, 1)).job.reason != ""
    await env.refused_ack(held, at=2)
    assert await env.driver.cancel_flow(name, env.at(2)) == 0
    assert await env.taken_ids(at=2, queues=[env.queue, env.q("other")]) == [outside.id]


@case(CANCEL)
async def cancel_a_large_flow(env: Environment) -> None:
    """Of more jobs than a driver cancels in one transaction, and ready among others that stay where they are."""
    name, size = env.name("flow"), 2 * MAX_CHANGED_JOBS + 1
    records = [env.job(flow_id=name if number % 2 else None) for number in range(2 * size)]
    await env.driver.enqueue(records, env.now)
    assert await env.driver.cancel_flow(name, env.at(1)) == size
    counts = await env.counts(1)
    assert (counts["ready"], counts["cancelled"]) == (size, size)
    assert await env.driver.cancel_flow(name, env.at(2)) == 0
    assert await env.taken_ids(at=2, limit=3) == [record.id for record in records[0:6:2]]


@case(CANCEL)
async def enqueued_into_a_cancelled_flow(env: Environment) -> None:
    name = env.name("flow")
    await env.add(flow_id=name)
    await env.driver.cancel_flow(name, env.at(1))
    ready, later = env.job(flow_id=name), env.job(flow_id=name, run_at=env.at(60))
    blocked = env.job(flow_id=name, depends_on=(ready.id,))
    outside = env.job(flow_id=env.name("other"))
    jobs = (ready, later, blocked, outside)
    assert await env.put(*jobs, at=2) == [Enqueued(job.id, False) for job in jobs]
    assert await env.states(*jobs, at=2) == ["cancelled", "cancelled", "cancelled", "ready"]
    record = (await env.info(later, 2)).job
    assert (record.finished_at, record.reason != "") == (env.at(2), True)
    assert await env.taken_ids(at=100) == [outside.id]


@case(CANCEL)
async def spawned_into_a_cancelled_flow(env: Environment) -> None:
    """A handler outside adds to a flow that was cancelled meanwhile: the jobs are stored as cancelled."""
    name = env.name("flow")
    await env.add_many(2)
    acked, failed = await env.take()
    await env.add(flow_id=name)
    await env.driver.cancel_flow(name, env.at(1))
    one, two = env.job(flow_id=name), env.job(flow_id=name)
    await env.done(Ack(acked.lease, None, (one,)), at=2)
    await env.done(Fail(failed.lease, "dead", 1, env.at(2), "", (two,)), at=2)
    assert await env.states(acked, failed, one, two, at=2) == ["done", "dlq", "cancelled", "cancelled"]
    assert await env.take(at=2) == []


@case(CANCEL)
async def cancelled_flow_whose_job_was_running(env: Environment) -> None:
    """The running job's ack is refused, and its spawned jobs are not stored."""
    name = env.name("flow")
    await env.add(flow_id=name)
    held = await env.take_one()
    await env.driver.cancel_flow(name, env.at(1))
    child = env.job(flow_id=name)
    answers = await env.settle(Ack(held.lease, None, (child,)), at=2)
    assert [type(answer).__name__ for answer in answers] == ["JobNotInflight"]
    assert await env.gone(child)


@case(UNFLAG)
async def requeue_takes_the_flag_away(env: Environment) -> None:
    name = env.name("flow")
    first, second = await env.add_many(2, flow_id=name)
    await env.driver.cancel_flow(name, env.at(1))
    assert await env.driver.requeue([first.id], env.at(2)) == [None]
    third = await env.add(flow_id=name, at=3)
    assert await env.states(first, second, third, at=3) == ["ready", "cancelled", "ready"]
    assert await env.drain(at=3) == [first.id, third.id]


@case(UNFLAG)
async def flag_comes_back_with_the_next_cancel(env: Environment) -> None:
    name = env.name("flow")
    first = await env.add(flow_id=name)
    await env.driver.cancel_flow(name, env.at(1))
    await env.driver.requeue([first.id], env.at(2))
    assert await env.driver.cancel_flow(name, env.at(3)) == 1
    assert await env.state(await env.add(flow_id=name, at=4), 4) == "cancelled"


@case(FORGOTTEN)
async def deleted_flow_keeps_no_flag(env: Environment) -> None:
    """Its jobs in two queues are deleted one after the other: the flag goes with the last one."""
    name = env.name("flow")
    here, there = await env.add(flow_id=name), await env.add(flow_id=name, queue=env.q("other"))
    assert await env.driver.cancel_flow(name, env.at(1)) == 2
    assert await env.driver.delete([here.id]) == [None]
    late = await env.add(flow_id=name, at=2)
    assert await env.state(late, 2) == "cancelled"
    assert await env.driver.delete([late.id, there.id]) == [None, None]
    again = [await env.add(flow_id=name, queue=queue, at=3) for queue in (env.queue, env.q("other"))]
    assert await env.states(*again, at=3) == ["ready", "ready"]
    assert (await flow(env, 3)).status == "running"


@case(FORGOTTEN)
async def pruned_flow_keeps_no_flag(env: Environment) -> None:
    name = env.name("flow")
    done = await env.finished(flow_id=name, queue=env.q("other"))
    cancelled = await env.add(flow_id=name)
    assert await env.driver.cancel_flow(name, env.at(1)) == 1
    while not (await env.gone(done) and await env.gone(cancelled)):
        assert await env.driver.prune(env.at(2), 100) > 0
    assert await env.state(await env.add(flow_id=name, at=3), 3) == "ready"


@case(FORGOTTEN)
async def queues_where_nothing_was_stored_keep_no_flag(env: Environment) -> None:
    """Calls that named the flow for another queue and stored nothing there: the key was taken, the outcome refused."""
    name, other, third = env.name("flow"), env.q("other"), env.q("third")
    taken = await env.add(queue=other, idempotency_key="taken")
    held = await env.take_one(queues=[other])
    member, known = env.job(flow_id=name), env.job(flow_id=name, queue=other, idempotency_key="taken")
    assert await env.put(member, known) == [Enqueued(member.id, False), Enqueued(taken.id, True)]
    await env.refused(Ack(held.lease, None, (env.job(flow_id=name, queue=third),)), LeaseExpired, at=3600)
    assert await env.driver.cancel_flow(name, env.at(1)) == 1
    assert await env.driver.delete([member.id]) == [None]
    again = [await env.add(flow_id=name, queue=queue, at=2) for queue in (env.queue, other, third)]
    assert await env.states(*again, at=2) == ["ready", "ready", "ready"]


@case(FORGOTTEN)
async def delete_beside_cancel_flow_and_enqueue(env: Environment) -> None:
    """Whichever call comes first: nothing of it is left for the next flow of that name."""
    drivers = await env.siblings(3)
    for turn in range(12):
        name = env.name(f"flow{turn}")
        first = await env.add(flow_id=name, run_at=env.at(60))
        second = env.job(flow_id=name, queue=env.q("other"), run_at=env.at(60))
        await asyncio.gather(
            drivers[0].cancel_flow(name, env.now), drivers[1].enqueue([second], env.now), drivers[2].delete([first.id])
        )
        assert await env.driver.delete([second.id]) == [None]
        again = [await env.add(flow_id=name, queue=queue, at=2) for queue in (env.queue, env.q("other"))]
        assert await env.states(*again, at=2) == ["ready", "ready"]


@case(CANCEL, "No name collides with another, whatever characters it is made of.")
async def only_the_flow_named(env: Environment) -> None:
    names = [env.name(text) for text in ("f", "f%", "f_", "f*", "f:1", "f'", "F")]
    jobs = [await env.add(flow_id=name) for name in names]
    assert await env.driver.cancel_flow(names[1], env.now) == 1
    assert await env.states(*jobs) == ["ready", "cancelled", "ready", "ready", "ready", "ready", "ready"]
