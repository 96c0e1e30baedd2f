"""Reserve: what is returned, what never is, and what a reservation contains."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.drivers import Reserved

LEASED = "A job under a valid lease is never returned."
NEVER = "A scheduled, blocked, done, dead or cancelled job is never returned."
LIMIT = "It never returns more than `limit` jobs, and none for a limit of zero."


@case("It never blocks, and returns an empty list when nothing is runnable.")
async def nothing_to_do(env: Environment) -> None:
    assert await env.take() == []
    await env.add(run_at=env.at(60))
    assert await env.take() == []
    assert await env.take(queues=[]) == []


@case(LIMIT)
async def never_more_than_limit(env: Environment) -> None:
    jobs = await env.add_many(7)
    assert await env.taken_ids(0) == []
    assert await env.taken_ids(3) == ids_of(jobs[:3])
    assert await env.taken_ids(3) == ids_of(jobs[3:6])
    assert await env.taken_ids(3) == ids_of(jobs[6:])


@case(LIMIT)
async def limit_counts_over_queues_and_groups(env: Environment) -> None:
    queues = [env.q("a"), env.q("b"), env.q("c")]
    for queue in queues:
        await env.add_many(3, queue=queue)
        for group in "xyz":
            await env.add(queue=queue, group=env.name(group))
    assert len(await env.take(4, queues=queues)) == 4
    assert len(await env.take(5, queues=queues)) == 5
    assert len(await env.take(100, queues=queues)) == 9


@case("It returns only jobs of the queues asked for.")
async def only_queues_asked_for(env: Environment) -> None:
    mine, other = await env.add(), await env.add(queue=env.q("other"))
    assert await env.taken_ids() == [mine.id]
    assert await env.taken_ids(queues=[env.q("empty")]) == []
    assert await env.taken_ids(queues=[env.q("empty"), env.q("other")]) == [other.id]


@case("It returns only jobs of the queues asked for.")
async def a_queue_named_twice(env: Environment) -> None:
    jobs = await env.add_many(4)
    assert sorted(await env.taken_ids(queues=[env.queue, env.queue])) == ids_of(jobs)


@case(LEASED)
async def leased_is_not_returned(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    assert await env.take(at=0) == []
    assert await env.take(at=9.999) == []
    assert await env.state(held, at=9.999) == "inflight"


@case(LEASED)
async def extended_is_not_returned(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=10)
    await env.extend(held, at=9, lease=10)
    assert await env.take(at=18.999) == []
    assert len(await env.take(at=19)) == 1


@case(LEASED)
async def siblings_see_the_lease(env: Environment) -> None:
    other = await env.sibling()
    jobs = await env.add_many(4)
    first = await env.take(2)
    second = await env.take(4, by=other)
    assert ids_of(first) + ids_of(second) == ids_of(jobs)


@case(NEVER)
async def what_is_never_returned(env: Environment) -> None:
    done = await env.finished()
    dead = await env.dead()
    dropped = await env.add()
    await env.drop(await env.take_one())
    cancelled = await env.add()
    await env.driver.cancel([cancelled.id], env.now)
    scheduled = await env.add(run_at=env.at(100))
    blocked = await env.add(depends_on=(scheduled.id,))
    behind_dead = await env.add(depends_on=(dead.id,))
    states = await env.states(done, dead, dropped, cancelled, scheduled, blocked, behind_dead)
    assert states == ["done", "dlq", "cancelled", "cancelled", "scheduled", "blocked", "blocked"]
    assert await env.take(at=99.999) == []


@case("The lease ends at `now + lease_for` and names the job and its queue.")
async def what_the_lease_says(env: Environment) -> None:
    job = await env.add(queue=env.q("a"))
    await env.add(queue=env.q("b"))
    for held in await env.take(at=1.5, lease=2.25, queues=[env.q("a"), env.q("b")]):
        assert held.lease.expires_at == env.at(3.75)
        assert (held.lease.job_id, held.lease.queue) == (held.job.id, held.job.queue)
    assert (await env.info(job, at=2)).lease_expires_at == env.at(3.75)


@case("The name of the worker is stored with the job that it reserved.")
async def worker_is_noted(env: Environment) -> None:
    first, second = await env.add_many(2)
    await env.take_one(worker=env.name("ada"))
    await env.take_one()
    assert (await env.info(first)).worker == env.name("ada")
    assert (await env.info(second)).worker == ""
    taken = await env.take_one(at=10, worker=env.name("bob"))
    assert (await env.info(taken, at=10)).worker == env.name("bob")


@case("Every reservation has a token of its own, of 128 random bits or more.")
async def tokens(env: Environment) -> None:
    """22 characters are what 128 bits need at least, in base64."""
    await env.add_many(50)
    seen = {held.lease.token for held in await env.take()}
    seen |= {held.lease.token for held in await env.take(at=20)}
    seen |= {held.lease.token for held in await env.take(at=40)}
    assert len(seen) == 150
    assert min(map(len, seen)) >= 22
    assert len({token[:8] for token in seen}) > 100, "the tokens of one call begin alike"


@case("Every reservation adds one to `deliveries`, which nothing ever takes back.")
async def deliveries(env: Environment) -> None:
    """Over retry, give-back, expiry, release, failure, cancel and requeue: each reservation is one more."""
    job = await env.add()
    worker = env.name("w")
    seen = []

    async def next_one(at: float) -> Reserved:
        held = await env.take_one(at=at, worker=worker)
        seen.append(held.job.deliveries)
        assert (await env.info(job, at=at)).job.deliveries == held.job.deliveries
        return held

    await env.retry(await next_one(0), at=1)
    await env.retry(await next_one(2), at=3, attempts=1)
    await next_one(4)
    await next_one(14)
    await env.driver.release(worker, env.at(15))
    await env.fail(await next_one(16), at=17)
    await env.driver.requeue([job.id], env.at(18), None, True)
    await next_one(19)
    await env.driver.cancel([job.id], env.at(20))
    await env.driver.requeue([job.id], env.at(21))
    await env.ack(await next_one(22), at=23)
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert (await env.info(job, at=23)).job.deliveries == 7
