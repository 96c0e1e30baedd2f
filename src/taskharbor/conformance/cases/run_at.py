"""`run_at`: the time is what the caller passes, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Retry

DUE = "A job whose `run_at` lies after `now` is scheduled, and ready from the very millisecond of `run_at` on."
CLOCK = "Every operation whose outcome depends on time takes `now`; a driver reads a clock in `server_time` alone."
BY_NOW = "A state follows from `now` alone, never from a background process that has to run first."
WHOLE = "`now` is an aware UTC datetime in whole milliseconds, and core rounds `run_at` up to one."
EXPIRED_READS = (
    "An inflight job whose lease has expired reads ready in inspect, list, counts and flow, without "
    "worker, lease or `run_at`."
)


@case(DUE)
async def due_at_the_millisecond(env: Environment) -> None:
    job = await env.add(run_at=env.at(5.123))
    assert await env.states(job, at=5.122) == ["scheduled"]
    assert await env.take(at=5.122) == []
    assert await env.states(job, at=5.123) == ["ready"]
    assert await env.taken_ids(at=5.123) == [job.id]


@case(DUE)
async def run_at_of_now_is_ready(env: Environment) -> None:
    now, past = await env.add(run_at=env.now), await env.add(run_at=env.at(-100))
    assert await env.states(now, past) == ["ready", "ready"]
    assert await env.taken_ids() == [now.id, past.id]


@case(DUE)
async def counts_and_list_follow(env: Environment) -> None:
    job = await env.add(run_at=env.at(5))
    assert await env.counts(4.999) == {"scheduled": 1}
    assert await env.all_ids(4.999, state="scheduled") == [job.id]
    assert await env.all_ids(4.999, state="ready") == []
    assert await env.counts(5) == {"ready": 1}
    assert await env.all_ids(5, state="scheduled") == []
    assert await env.all_ids(5, state="ready") == [job.id]


@case(BY_NOW)
async def asked_about_an_earlier_moment(env: Environment) -> None:
    """Asking with a later `now` first moves nothing."""
    job = await env.add(run_at=env.at(5))
    assert [await env.state(job, at) for at in (6, 4, 5, 4.999)] == ["ready", "scheduled", "ready", "scheduled"]
    assert await env.counts(6) == {"ready": 1}
    assert await env.counts(4) == {"scheduled": 1}


@case(BY_NOW, EXPIRED_READS)
async def expired_reads_ready(env: Environment) -> None:
    job = await env.add(run_at=env.at(-1))
    held = await env.take_one(lease=10, worker=env.name("w"))
    assert held.job.run_at == env.at(-1)
    before, after = await env.info(job, 9.999), await env.info(job, 10)
    assert (before.state, before.worker, before.lease_expires_at) == ("inflight", env.name("w"), env.at(10))
    assert (after.state, after.worker, after.lease_expires_at, after.job.run_at) == ("ready", "", None, None)
    assert (await env.info(job, 9.999)).state == "inflight"


@case(EXPIRED_READS)
async def expired_reads_ready_everywhere(env: Environment) -> None:
    flow = env.name("flow")
    job = await env.add(flow_id=flow)
    await env.take_one(lease=10, worker=env.name("w"))
    assert await env.counts(9.999) == {"inflight": 1}
    assert await env.counts(10) == {"ready": 1}
    assert await env.all_ids(10, state="inflight") == []
    assert await env.all_ids(10, state="ready") == [job.id]
    listed = (await env.driver.list(now=env.at(10), queue=env.queue)).items[0]
    node = (await env.driver.flow(flow, env.at(10))).nodes[0]
    for info in (listed, node):
        assert (info.state, info.worker, info.lease_expires_at, info.job.run_at) == ("ready", "", None, None)
    assert (await env.driver.flow(flow, env.at(9.999))).nodes[0].state == "inflight"


@case("A job that `list` shows as ready can be reserved once its queue is not paused and its group has capacity.")
async def ready_can_be_reserved(env: Environment) -> None:
    """Fresh, due, expired, retried, released, requeued and unblocked: all that reads ready comes."""
    fresh = await env.add()
    worker = env.name("w")
    expired, retried, released, first = [await env.add(queue=env.q("b")) for _ in range(4)]
    taken = {held.job.id: held for held in await env.take(queues=[env.q("b")], worker=worker, lease=5)}
    await env.retry(taken[retried.id], at=1, run_at=8)
    await env.driver.release(worker, env.at(1), [taken[expired.id].lease.token, taken[first.id].lease.token])
    child = await env.add(depends_on=(first.id,), queue=env.q("b"))
    await env.ack(taken[first.id], at=2)
    due = await env.add(run_at=env.at(9))
    queues = [env.queue, env.q("b")]
    ready = {id for queue in queues for id in await env.all_ids(9, state="ready", queue=queue)}
    assert ready == {job.id for job in (fresh, expired, retried, released, child, due)}
    assert set(await env.taken_ids(at=9, queues=queues)) == ready


@case("Pause and group limits do not change a state: a job that waits for them is ready.")
async def waiting_is_ready(env: Environment) -> None:
    first, second = await env.add_many(2, group=env.name("g"))
    await env.take()
    await env.driver.pause(env.queue)
    third = await env.add()
    assert await env.states(first, second, third) == ["inflight", "ready", "ready"]
    assert await env.counts() == {"inflight": 1, "ready": 2}


@case(CLOCK)
async def long_ago(env: Environment) -> None:
    """In 1990 a job of tomorrow is not due, and a lease of a minute lasts a minute."""
    then = datetime(1990, 3, 1, 12, tzinfo=UTC)
    job = env.job(run_at=then + timedelta(days=1), created_at=then)
    await env.driver.enqueue([job], then)
    assert (await env.driver.inspect(job.id, then)).state == "scheduled"
    assert await env.driver.reserve([env.queue], then, timedelta(minutes=1), 1) == []
    due = then + timedelta(days=1)
    held = (await env.driver.reserve([env.queue], due, timedelta(minutes=1), 1))[0]
    assert await env.driver.settle([Retry(held.lease, None, 1)], due + timedelta(seconds=59)) == [None]


@case(CLOCK)
async def far_ahead(env: Environment) -> None:
    """In 2500 what is due is due, and an expired lease is expired."""
    then = datetime(2500, 1, 1, tzinfo=UTC)
    job = env.job(run_at=then, created_at=then)
    await env.driver.enqueue([job], then - timedelta(days=1))
    assert (await env.driver.counts(then))[env.queue] == {"ready": 1}
    assert len(await env.driver.reserve([env.queue], then, timedelta(minutes=1), 1)) == 1
    assert len(await env.driver.reserve([env.queue], then + timedelta(minutes=1), timedelta(minutes=1), 1)) == 1


@case(WHOLE, "A stored record comes back as it was given, byte for byte.")
async def moments_come_back_exactly(env: Environment) -> None:
    """Aware, UTC, to the millisecond: no rounding through floating point, no local time."""
    for milliseconds in (1, 3, 7, 333, 999):
        moment = env.now + timedelta(milliseconds=milliseconds)
        job = env.job(run_at=moment, created_at=moment)
        await env.driver.enqueue([job], moment)
        held = (await env.driver.reserve([env.queue], moment, timedelta(milliseconds=milliseconds), 1))[0]
        end = moment + timedelta(milliseconds=milliseconds)
        info = await env.driver.inspect(job.id, moment)
        for found, given in (
            (info.job.run_at, moment),
            (info.job.created_at, moment),
            (info.lease_expires_at, end),
            (held.lease.expires_at, end),
        ):
            assert found == given
            assert found.utcoffset() == timedelta(0)
        await env.driver.ack(held.lease, moment)
        assert (await env.driver.inspect(job.id, moment)).job.finished_at == moment


@case(WHOLE)
async def other_time_zones_are_the_same_moment(env: Environment) -> None:
    """A `run_at` given in another zone is the moment it names."""
    zone = timezone(timedelta(hours=5, minutes=30))
    job = await env.add(run_at=env.at(5).astimezone(zone))
    assert await env.states(job, at=4.999) == ["scheduled"]
    assert await env.states(job, at=5) == ["ready"]
    assert (await env.info(job)).job.run_at == env.at(5)
