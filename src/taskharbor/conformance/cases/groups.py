"""Groups: limits, the order inside a group, and whose limit counts."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of
from taskharbor.drivers import Ack

LIMIT = "Within a queue, never more jobs of one group are inflight than its limit."
ORDER = "Jobs of one group start in the order in which they became due; priority orders nothing inside a group."
NOBODY_HELD_UP = "A scheduled or blocked member does not hold up the others."
TO_THE_END = "A job that comes back (retry, expiry, release, requeue) goes to the end of its group."
SETS = (
    "The first stored job with a `group_limit` above 0 sets the limit, which then stays with the group's name; "
    "without one it is 1."
)
TWO_QUEUES = "The same group name in two queues is two groups."


@case(LIMIT, SETS)
async def limit_is_one_without_one(env: Environment) -> None:
    first, second = await env.add_many(2, group=env.name("g"))
    held = await env.take()
    assert ids_of(held) == [first.id]
    assert await env.take() == []
    await env.ack(held[0])
    assert await env.taken_ids() == [second.id]


@case(LIMIT)
async def limit_of_three(env: Environment) -> None:
    jobs = await env.add_many(8, group=env.name("g"), group_limit=3)
    held = await env.take(100)
    assert ids_of(held) == ids_of(jobs[:3])
    await env.ack(held[1])
    assert await env.taken_ids() == [jobs[3].id]
    assert await env.take() == []


@case(LIMIT)
async def limit_over_calls_and_siblings(env: Environment) -> None:
    await env.add_many(8, group=env.name("g"), group_limit=3)
    other = await env.sibling()
    assert [len(await env.take(1, by=by)) for by in (env.driver, other, env.driver, other, env.driver)] == [
        1,
        1,
        1,
        0,
        0,
    ]


@case(LIMIT)
async def limit_leaves_room_for_the_others(env: Environment) -> None:
    """A full group blocks neither ungrouped jobs nor other groups."""
    await env.add_many(3, group=env.name("full"))
    await env.take(1)
    free, other = await env.add(), await env.add(group=env.name("other"))
    assert sorted(await env.taken_ids()) == [free.id, other.id]


@case(ORDER)
async def order_by_joining(env: Environment) -> None:
    group = env.name("g")
    late = await env.add(group=group, run_at=env.at(5), priority=9)
    first, second = [env.job(group=group, priority=priority) for priority in (-1, 7)][::-1]
    await env.put(first, second)
    middle = await env.add(group=group, at=3)
    last = await env.add(group=group, at=6, priority=100)
    assert await env.drain(at=10) == ids_of([first, second, middle, late, last])


@case(ORDER)
async def priority_orders_nothing_in_a_group(env: Environment) -> None:
    jobs = [await env.add(group=env.name("g"), group_limit=10, priority=priority) for priority in (0, 5, -5, 9)]
    assert await env.taken_ids() == ids_of(jobs)


@case(NOBODY_HELD_UP)
async def scheduled_member(env: Environment) -> None:
    group = env.name("g")
    scheduled = await env.add(group=group, run_at=env.at(60))
    fresh = await env.add(group=group)
    assert await env.drain() == [fresh.id]
    assert await env.drain(at=60) == [scheduled.id]


@case(NOBODY_HELD_UP)
async def blocked_member(env: Environment) -> None:
    group = env.name("g")
    scheduled = await env.add(run_at=env.at(60))
    blocked = await env.add(group=group, depends_on=(scheduled.id,))
    fresh = await env.add(group=group)
    assert await env.drain() == [fresh.id]
    assert await env.drain(at=60) == [scheduled.id, blocked.id]


@case(NOBODY_HELD_UP)
async def member_that_retries_later(env: Environment) -> None:
    """A delayed retry gives its place to the next one, and does not come back before its time."""
    first, second = await env.add_many(2, group=env.name("g"))
    await env.retry(await env.take_one(), at=1, run_at=60)
    held = await env.take_one(at=1, lease=1000)
    assert held.job.id == second.id
    assert await env.take(at=60) == []
    await env.ack(held, at=61)
    assert await env.taken_ids(at=61) == [first.id]


@case(TO_THE_END)
async def retry_to_the_end(env: Environment) -> None:
    jobs = await env.add_many(3, group=env.name("g"))
    await env.retry(await env.take_one(), at=1)
    late = await env.add(group=env.name("g"), at=2)
    assert await env.drain(at=3) == ids_of([jobs[1], jobs[2], jobs[0], late])


@case(TO_THE_END)
async def expiry_to_the_end(env: Environment) -> None:
    first, second = await env.add_many(2, group=env.name("g"))
    await env.take_one(lease=10)
    third = await env.add(group=env.name("g"), at=9)
    fourth = await env.add(group=env.name("g"), at=11)
    assert await env.drain(at=20) == ids_of([second, third, first, fourth])


@case(TO_THE_END)
async def release_to_the_end(env: Environment) -> None:
    first, second = await env.add_many(2, group=env.name("g"))
    await env.take_one(worker=env.name("w"))
    await env.driver.release(env.name("w"), env.at(1))
    third = await env.add(group=env.name("g"), at=2)
    assert await env.drain(at=3) == ids_of([second, first, third])


@case(TO_THE_END)
async def requeue_to_the_end(env: Environment) -> None:
    dead = await env.dead(group=env.name("g"))
    first = await env.add(group=env.name("g"))
    await env.driver.requeue([dead.id], env.at(1))
    second = await env.add(group=env.name("g"), at=2)
    assert await env.drain(at=3) == ids_of([first, dead, second])


@case(SETS)
async def first_positive_limit(env: Environment) -> None:
    """Jobs without one before it do not set it; jobs with another after it do not change it."""
    group = env.name("g")
    await env.add_many(3, group=group)
    assert len(await env.take()) == 1
    await env.add(group=group, group_limit=3)
    assert len(await env.take()) == 2
    await env.add_many(5, group=group, group_limit=5)
    await env.add(group=group, group_limit=1)
    assert await env.take() == []


@case(SETS)
async def first_positive_limit_in_one_call(env: Environment) -> None:
    group = env.name("g")
    await env.put(*(env.job(group=group, group_limit=limit) for limit in (0, 2, 4, 0, 0)))
    assert len(await env.take()) == 2


@case(SETS)
async def limit_brought_by_a_scheduled_job(env: Environment) -> None:
    group = env.name("g")
    await env.add_many(4, group=group)
    await env.add(group=group, group_limit=3, run_at=env.at(1000))
    assert len(await env.take()) == 3


@case(SETS)
async def limit_brought_by_a_blocked_or_spawned_job(env: Environment) -> None:
    parent = await env.add()
    held = await env.take_one()
    await env.add_many(3, group=env.name("blocked"))
    await env.add(group=env.name("blocked"), group_limit=2, depends_on=(parent.id,))
    assert len(await env.take()) == 2
    await env.add_many(3, group=env.name("spawned"))
    await env.done(Ack(held.lease, None, (env.job(group=env.name("spawned"), group_limit=3, run_at=env.at(900)),)))
    assert len(await env.take(queues=[env.queue])) == 3


@case(SETS)
async def limit_of_a_job_that_was_not_stored(env: Environment) -> None:
    """The group limit of a job that was known already does not count."""
    group = env.name("g")
    known = await env.add(group=group, idempotency_key="key")
    await env.add_many(2, group=group)
    await env.put(
        env.job(group=group, group_limit=5, idempotency_key="key"), env.job(id=known.id, group=group, group_limit=5)
    )
    assert len(await env.take()) == 1
    await env.add(group=group, group_limit=2)
    assert len(await env.take()) == 1


@case(SETS)
async def limit_stays_with_the_name(env: Environment) -> None:
    """Also when no job of the group is left."""
    group = env.name("g")
    job = await env.finished(group=group, group_limit=2)
    assert await env.driver.delete([job.id]) == [None]
    await env.add_many(5, group=group, group_limit=4)
    assert len(await env.take()) == 2


@case(TWO_QUEUES)
async def two_queues(env: Environment) -> None:
    group, a, b = env.name("g"), env.q("a"), env.q("b")
    first = await env.add(queue=a, group=group)
    second = await env.add(queue=b, group=group, group_limit=2)
    await env.add_many(2, queue=a, group=group)
    third = (await env.add_many(2, queue=b, group=group))[0]
    assert sorted(await env.taken_ids(queues=[a, b])) == ids_of([first, second, third])


@case(TWO_QUEUES, "No name collides with another, whatever characters it is made of.")
async def queue_and_group_are_not_pasted_together(env: Environment) -> None:
    pairs = [("a:b", "c"), ("a", "b:c"), ("a", "b c"), ("a b", "c"), ("a", ":"), ("a:", "x"), ("a", ":x")]
    for queue, group in pairs:
        await env.add_many(2, queue=env.q(queue), group=group)
    assert len(await env.take(queues=sorted({env.q(queue) for queue, _ in pairs}))) == len(pairs)


@case(LIMIT)
async def largest_limit(env: Environment) -> None:
    jobs = await env.add_many(5, group=env.name("g"), group_limit=2**31 - 1)
    assert await env.taken_ids() == ids_of(jobs)
