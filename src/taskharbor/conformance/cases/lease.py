"""Leases: extending, and expiry to the millisecond."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of, refusals
from taskharbor.drivers import Ack, JobRecord, Lease, LeaseExpired, Retry

EXTENDED = "An extended lease keeps its token and ends at `now + lease_for`, never earlier than it did."
IN_PLACE = "A refused lease has its error in its place of the result; the others are extended."
EXPIRED = "A job whose lease has expired (`expires_at <= now`) is runnable again, with `run_at` cleared."
STAYS_EXPIRED = "A lease with `expires_at <= now` is `LeaseExpired`, and stays so until the job is reserved again."


@case(EXTENDED)
async def extend(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one(lease=10, worker=env.name("w"))
    longer = Lease(job.id, env.queue, held.lease.token, env.at(25.5))
    assert await env.extend(held, at=5.5, lease=20) == [longer]
    info = await env.info(job, 25.499)
    assert (info.state, info.worker, info.lease_expires_at) == ("inflight", env.name("w"), env.at(25.5))
    assert await env.states(job, at=25.5) == ["ready"]


@case(EXTENDED)
async def never_earlier(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one(lease=60)
    assert await env.extend(held, at=1, lease=5) == [Lease(job.id, env.queue, held.lease.token, env.at(60))]
    assert await env.states(job, at=59.999) == ["inflight"]
    assert await env.take(at=59.999) == []


@case(EXTENDED)
async def never_earlier_than_the_store_knows(env: Environment) -> None:
    """The caller's older lease does not shorten the one in the store."""
    await env.add()
    held = await env.take_one(lease=10)
    await env.extend(held, at=1, lease=60)
    assert [answer.expires_at for answer in await env.extend(held, at=2, lease=10) if isinstance(answer, Lease)] == [
        env.at(61)
    ]


@case(EXTENDED)
async def extend_often(env: Environment) -> None:
    """With the newest lease or with the first one: only the token counts."""
    await env.add()
    held = await env.take_one(lease=10)
    for turn in range(1, 20):
        assert refusals(await env.extend(held, at=turn * 9, lease=10)) == ["ok"]
    await env.ack(held, at=19 * 9 + 9.999)


@case(EXTENDED)
async def same_lease_twice_in_a_call(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    answers = await env.extend(held, held, at=5, lease=10)
    assert [answer.expires_at for answer in answers if isinstance(answer, Lease)] == [env.at(15), env.at(15)]


@case(EXTENDED)
async def extending_moves_no_counter(env: Environment) -> None:
    job = await env.add(attempts=2)
    held = await env.take_one()
    await env.extend(held, at=1)
    record = (await env.info(job, 1)).job
    assert (record.attempts, record.deliveries, record.lost) == (2, 1, 0)


@case(IN_PLACE)
async def extend_batch_with_bad_ones(env: Environment) -> None:
    """Good, unknown, good, not inflight, wrong token, expired, good."""
    await env.add_many(6)
    short = await env.take_one(lease=1)
    first, second, settled, wrong, third = await env.take(5, lease=10)
    await env.ack(settled, at=1)
    unknown = Lease(env.name("unknown"), env.queue, first.lease.token, env.at(10))
    stolen = Lease(wrong.job.id, env.queue, first.lease.token, env.at(10))
    answers = await env.extend(first, unknown, second, settled, stolen, short, third, at=2, lease=10)
    assert refusals(answers) == ["ok", "JobNotFound", "ok", "JobNotInflight", "LeaseMismatch", "LeaseExpired", "ok"]
    good = [answer for answer in answers if isinstance(answer, Lease)]
    assert [(lease.job_id, lease.expires_at) for lease in good] == [
        (held.job.id, env.at(12)) for held in (first, second, third)
    ]
    assert (await env.info(wrong, 2)).lease_expires_at == env.at(10)


@case(IN_PLACE)
async def extend_nothing(env: Environment) -> None:
    assert await env.extend() == []


@case(EXPIRED)
async def equality_is_expired(env: Environment) -> None:
    job = await env.add(run_at=env.at(-5))
    await env.take_one(lease=10)
    assert await env.take(at=9.999) == []
    again = await env.take_one(at=10)
    assert again.job.id == job.id
    assert again.job.run_at is None
    assert (await env.info(job, 10)).job.run_at is None


@case(EXPIRED)
async def every_job_of_a_crashed_worker_comes_back(env: Environment) -> None:
    jobs = await env.add_many(20)
    await env.take(20, lease=10)
    assert await env.take(at=9.999) == []
    assert sorted(await env.taken_ids(at=10)) == ids_of(jobs)


@case(EXPIRED)
async def shorter_lease_ends_first(env: Environment) -> None:
    first, second, third = await env.add_many(3)
    await env.take_one(lease=30)
    await env.take_one(lease=10)
    await env.take_one(lease=20)
    assert await env.taken_ids(at=10, lease=100) == [second.id]
    assert await env.taken_ids(at=20, lease=100) == [third.id]
    assert await env.taken_ids(at=30, lease=100) == [first.id]


@case(STAYS_EXPIRED)
async def settled_in_the_last_millisecond(env: Environment) -> None:
    await env.add_many(2)
    first, second = await env.take(2, lease=10)
    await env.ack(first, at=9.999)
    await env.refused(Ack(second.lease), LeaseExpired, at=10)


@case(STAYS_EXPIRED)
async def extended_in_the_last_millisecond(env: Environment) -> None:
    await env.add_many(2)
    first, second = await env.take(2, lease=10)
    assert refusals(await env.extend(first, at=9.999)) == ["ok"]
    assert refusals(await env.extend(second, at=10)) == ["LeaseExpired"]


@case(STAYS_EXPIRED)
async def stays_expired(env: Environment) -> None:
    """Reading, listing, trying again: it stays expired until another worker takes it over."""
    job = await env.add()
    held = await env.take_one(lease=10)
    for at in (10, 11, 1000):
        assert refusals(await env.settle(Ack(held.lease), Retry(held.lease, None, 1), at=at)) == ["LeaseExpired"] * 2
        assert refusals(await env.extend(held, at=at)) == ["LeaseExpired"]
        assert await env.state(job, at) == "ready"
        assert await env.counts(at) == {"ready": 1}
    await env.take_one(at=1001)
    assert refusals(await env.settle(Ack(held.lease), at=1001)) == ["LeaseMismatch"]


@case(STAYS_EXPIRED)
async def stays_expired_beside_a_busy_queue(env: Environment) -> None:
    """Reservations that return other jobs do not change the place of the expired one."""
    await env.add()
    held = await env.take_one(lease=10)
    await env.add_many(3, priority=9, at=1)
    for at in (10, 11, 12):
        await env.take_one(at=at, lease=100)
        assert refusals(await env.settle(Ack(held.lease), at=at)) == ["LeaseExpired"]


@case(STAYS_EXPIRED)
async def the_store_decides_when_it_ends(env: Environment) -> None:
    """What the caller writes into a lease does not count: the store knows when it ends."""
    await env.add()
    held = await env.take_one(lease=10)
    forged = Lease(held.lease.job_id, held.lease.queue, held.lease.token, env.at(1000))
    assert refusals(await env.settle(Ack(forged), at=10)) == ["LeaseExpired"]
    assert refusals(await env.extend(forged, at=10)) == ["LeaseExpired"]


@case(STAYS_EXPIRED)
async def an_old_copy_of_an_extended_lease_is_good(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    await env.extend(held, at=5, lease=60)
    await env.ack(held, at=30)


async def taken_over(env: Environment) -> JobRecord:
    """A job whose second delivery is leased at 10."""
    await env.add(attempts=3)
    await env.take_one(lease=10)
    return (await env.take_one(at=10)).job


@case("Taking over an expired job adds one to `lost`.")
async def takeover_adds_to_lost(env: Environment) -> None:
    record = await taken_over(env)
    assert (record.lost, record.deliveries, record.attempts) == (1, 2, 3)
    third = (await env.take_one(at=20)).job
    assert (third.lost, third.deliveries, third.attempts) == (2, 3, 3)
    assert (await env.info(third.id, 20)).job.lost == 2
