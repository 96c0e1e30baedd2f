"""Release: the jobs of a dead worker are ready again at once."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of

GIVES_BACK = (
    "`release(worker, now, keep)` gives back at once the jobs that the worker has under valid leases,"
    " except the tokens in `keep`, and returns their number."
)
COUNTS = "Release adds one to `lost`, clears `run_at`, and spends no attempt."


@case(GIVES_BACK)
async def release(env: Environment) -> None:
    jobs = await env.add_many(3)
    await env.take(worker=env.name("w"))
    assert await env.driver.release(env.name("w"), env.at(1)) == 3
    assert await env.states(*jobs, at=1) == ["ready"] * 3
    assert (await env.info(jobs[0], 1)).worker == ""
    assert sorted(await env.taken_ids(at=1)) == ids_of(jobs)


@case(GIVES_BACK)
async def over_queues_and_groups(env: Environment) -> None:
    queues = [env.q("a"), env.q("b")]
    jobs = [await env.add(queue=queue, group=group) for queue in queues for group in (None, env.name("g"))]
    await env.take(queues=queues, worker=env.name("w"))
    assert await env.driver.release(env.name("w"), env.at(1)) == 4
    assert sorted(await env.taken_ids(at=1, queues=queues)) == ids_of(jobs)


@case(GIVES_BACK)
async def only_of_this_worker(env: Environment) -> None:
    mine, similar, other = await env.add_many(3)
    await env.take_one(worker=env.name("w"))
    await env.take_one(worker=env.name("w1"))
    await env.take_one(worker=env.name("%"))
    assert await env.driver.release(env.name("w"), env.at(1)) == 1
    assert await env.states(mine, similar, other, at=1) == ["ready", "inflight", "inflight"]
    assert await env.driver.release(env.name("%"), env.at(1)) == 1
    assert await env.states(mine, similar, other, at=1) == ["ready", "inflight", "ready"]


@case(GIVES_BACK)
async def keeps_what_is_still_held(env: Environment) -> None:
    jobs = await env.add_many(4)
    taken = await env.take(worker=env.name("w"))
    keep = [taken[1].lease.token, taken[3].lease.token, "of another worker"]
    assert await env.driver.release(env.name("w"), env.at(1), keep) == 2
    assert await env.states(*jobs, at=1) == ["ready", "inflight", "ready", "inflight"]
    await env.ack(taken[1], at=2)
    await env.ack(taken[3], at=2)


@case(GIVES_BACK)
async def nothing_to_release(env: Environment) -> None:
    assert await env.driver.release(env.name("unknown"), env.now) == 0
    await env.add()
    await env.ack(await env.take_one(worker=env.name("w")))
    assert await env.driver.release(env.name("w"), env.at(1)) == 0


@case(GIVES_BACK)
async def releasing_twice(env: Environment) -> None:
    job = await env.add()
    await env.take_one(worker=env.name("w"))
    assert [await env.driver.release(env.name("w"), env.at(1)) for _ in range(3)] == [1, 0, 0]
    assert (await env.info(job, 1)).job.lost == 1


@case(GIVES_BACK)
async def expired_leases_are_not_released(env: Environment) -> None:
    """An expired job is runnable already: its place follows from its expiry, and it counts as lost when taken over."""
    expired, valid = await env.add_many(2)
    await env.take_one(lease=5, worker=env.name("w"))
    await env.take_one(lease=50, worker=env.name("w"))
    assert await env.driver.release(env.name("w"), env.at(5)) == 1
    assert await env.taken_ids(at=6) == [expired.id, valid.id]
    assert [(await env.info(job, 6)).job.lost for job in (expired, valid)] == [1, 1]


@case(GIVES_BACK)
async def taken_over_by_another(env: Environment) -> None:
    """A job of the dead worker that another worker has now stays where it is."""
    job = await env.add()
    await env.take_one(lease=5, worker=env.name("dead"))
    held = await env.take_one(at=5, lease=50, worker=env.name("alive"))
    assert await env.driver.release(env.name("dead"), env.at(6)) == 0
    assert await env.state(job, 6) == "inflight"
    await env.ack(held, at=7)


@case(COUNTS)
async def what_release_changes(env: Environment) -> None:
    job = await env.add(run_at=env.at(-1), attempts=2)
    await env.take_one(worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(1))
    record = (await env.info(job, 1)).job
    assert (record.lost, record.run_at, record.attempts, record.deliveries) == (1, None, 2, 1)
    assert (record.last_error, record.failed_at) == ("", None)


@case(COUNTS)
async def released_again_and_again(env: Environment) -> None:
    await env.add()
    for turn in range(1, 4):
        held = await env.take_one(at=turn, worker=env.name("w"))
        assert (held.job.deliveries, held.job.lost) == (turn, turn - 1)
        await env.driver.release(env.name("w"), env.at(turn))


@case("A paused queue gives no new reservation; resume gives them again.", GIVES_BACK)
async def released_into_a_paused_queue(env: Environment) -> None:
    job = await env.add()
    await env.take_one(worker=env.name("w"))
    await env.driver.pause(env.queue)
    assert await env.driver.release(env.name("w"), env.at(1)) == 1
    assert await env.take(at=1) == []
    await env.driver.resume(env.queue)
    assert await env.taken_ids(at=1) == [job.id]
