"""Order inside a queue: priority, then the time of joining the queue, then arrival, never the id."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of

ORDER = (
    "Order inside a queue: the higher priority first, then the time since which a job is due, then "
    "arrival, never the id."
)
EXACT = (
    "That order is exact as long as the `now` of the calls on a queue does not go back: each call "
    "first orders, within a bound, the jobs that became due by its `now`."
)
BEHIND = "A call whose `now` is behind another's may be ordered as if it had that other's `now`."
JOINS = (
    "A job becomes due at the later of its `run_at` and the `now` of the call that made it ready; an "
    "expired one at its expiry."
)
PLACE = (
    "Every call that makes a job ready or scheduled (enqueue, retry, requeue, release, the ack that "
    "unblocks it) gives it a new place in the order of arrival; expiry keeps the old one."
)
SAME_LINE = "A retried or crashed job waits in the same order as a new one: a stream of new jobs never starves it."


@case(ORDER)
async def arrival_not_id(env: Environment) -> None:
    """Inside one call, and over calls of the same millisecond."""
    jobs = [env.job() for _ in range(6)][::-1]
    await env.put(*jobs[:3])
    for job in jobs[3:]:
        await env.put(job)
    assert await env.drain() == ids_of(jobs)


@case(ORDER)
async def higher_priority_first(env: Environment) -> None:
    ranks = [0, 5, -5, 2**31 - 1, -(2**31), 1, -1]
    jobs = {rank: await env.add(priority=rank) for rank in ranks}
    assert await env.taken_ids() == [jobs[rank].id for rank in sorted(ranks, reverse=True)]


@case(ORDER)
async def higher_priority_first_one_by_one(env: Environment) -> None:
    ranks = [1, 3, 2, 3, 1, 0, -1]
    jobs = [await env.add(priority=rank, at=index) for index, rank in enumerate(ranks)]
    assert await env.drain(at=10) == [jobs[index].id for index in (1, 3, 2, 0, 4, 5, 6)]


@case(ORDER)
async def priority_before_joining_time(env: Environment) -> None:
    """A late job of a higher priority overtakes all others."""
    early = await env.add_many(3)
    late = await env.add(priority=1, at=50)
    assert await env.taken_ids(2, at=50) == [late.id, early[0].id]


@case(ORDER)
async def order_in_a_batch_is_order_one_by_one(env: Environment) -> None:
    """All three keys at once, in one reservation."""
    jobs = [(index % 3, index // 5, await env.add(priority=index % 3, at=index // 5)) for index in range(20)]
    expected = [job.id for _, _, job in sorted(jobs, key=lambda item: (-item[0], item[1]))]
    assert await env.taken_ids(at=10) == expected


@case(JOINS, ORDER)
async def joins_at_run_at(env: Environment) -> None:
    scheduled = await env.add(run_at=env.at(10))
    middle = await env.add(at=5)
    late = await env.add(at=11)
    assert await env.drain(at=20) == ids_of([middle, scheduled, late])


@case(JOINS)
async def past_run_at_joins_now(env: Environment) -> None:
    """A `run_at` that is over does not let a job overtake those that wait."""
    waiting = await env.add(at=5)
    backdated = await env.add(at=6, run_at=env.at(1))
    assert await env.drain(at=6) == ids_of([waiting, backdated])


@case(EXACT, JOINS, ORDER)
async def by_time_whichever_call_comes_first(env: Environment) -> None:
    """A job that became due, or expired, between two enqueues comes between them, whichever call noticed it."""
    dead = await env.dead()
    held = await env.add(), await env.add(group=env.name("g"))
    await env.take(2, lease=10)
    planned = await env.add(run_at=env.at(8)), await env.add(run_at=env.at(12))
    first = await env.add(at=7)
    second = await env.add(at=9)
    await env.driver.requeue([dead.id], env.at(11))
    last = await env.add(at=13)
    expected = ids_of([first, planned[0], second, held[0], dead, planned[1], last])
    assert [id for id in await env.drain(at=20) if id != held[1].id] == expected


@case(EXACT, JOINS, ORDER)
async def all_noticed_by_one_call(env: Environment) -> None:
    """By their times, not by their arrival, and whether they were scheduled or crashed."""
    late = await env.add(run_at=env.at(12))
    crashed = await env.add()
    await env.take_one(lease=10)
    early = await env.add(run_at=env.at(8))
    last = await env.add(at=15)
    assert await env.drain(at=20) == ids_of([early, crashed, late, last])


@case(ORDER)
async def in_one_call_as_given(env: Environment) -> None:
    """Whatever else a job has: a key, a run, a time that is over, a dependency that is done."""
    done = await env.finished()
    jobs = [
        env.job(),
        env.job(flow_id=env.name("f")),
        env.job(),
        env.job(idempotency_key="key"),
        env.job(run_at=env.at(-5)),
        env.job(),
        env.job(depends_on=(done.id,)),
        env.job(),
    ]
    await env.put(*jobs)
    assert await env.drain() == ids_of(jobs)


@case(BEHIND)
async def a_clock_that_is_behind(env: Environment) -> None:
    """By the time of the call, or behind the others: both are right. What comes later is behind it."""
    ahead = await env.add(at=5)
    behind = await env.add(at=3)
    later = await env.add(at=6)
    scheduled = await env.add(at=4, run_at=env.at(7))
    assert await env.state(scheduled, at=6) == "scheduled"
    order = await env.drain(at=6)
    assert order in (ids_of([behind, ahead, later]), ids_of([ahead, behind, later]))
    assert await env.drain(at=7) == [scheduled.id]


@case(PLACE, ORDER)
async def equal_times_by_arrival(env: Environment) -> None:
    """A job that becomes due in the very millisecond of an enqueue arrived before it."""
    scheduled = await env.add(run_at=env.at(10))
    second = await env.add(run_at=env.at(10), at=1)
    fresh = await env.add(at=10)
    assert await env.drain(at=10) == ids_of([scheduled, second, fresh])


@case(PLACE)
async def scheduled_by_arrival_within_priority(env: Environment) -> None:
    low = await env.add(run_at=env.at(10))
    high = await env.add(run_at=env.at(10), priority=1)
    assert await env.drain(at=10) == ids_of([high, low])


@case(PLACE, SAME_LINE)
async def retry_joins_now(env: Environment) -> None:
    old = await env.add()
    held = await env.take_one()
    before = await env.add(at=4)
    same_before = await env.add(at=5)
    await env.retry(held, at=5)
    same_after = await env.add(at=5)
    assert await env.drain(at=6) == ids_of([before, same_before, old, same_after])


@case(PLACE, JOINS)
async def retry_with_run_at_joins_then(env: Environment) -> None:
    old = await env.add()
    held = await env.take_one()
    planned = await env.add(at=1, run_at=env.at(8))
    await env.retry(held, at=5, run_at=8)
    after = await env.add(at=6, run_at=env.at(8))
    earlier = await env.add(at=7)
    assert await env.drain(at=9) == ids_of([earlier, planned, old, after])


@case(PLACE, JOINS)
async def expiry_joins_at_expiry(env: Environment) -> None:
    """However late it is noticed: its place follows from the end of its lease."""
    crashed = await env.add()
    await env.take_one(lease=10)
    before = await env.add(at=9.999)
    after = await env.add(at=10.001)
    assert await env.drain(at=30) == ids_of([before, crashed, after])


@case(PLACE)
async def expiry_keeps_arrival(env: Environment) -> None:
    first = await env.add(run_at=env.at(10))
    crashed = await env.add()
    await env.take_one(lease=10)
    fresh = await env.add(at=10)
    assert await env.drain(at=10) == ids_of([first, crashed, fresh])


@case(PLACE)
async def requeue_joins_now(env: Environment) -> None:
    dead = await env.dead()
    before = await env.add(at=5)
    await env.driver.requeue([dead.id], env.at(5))
    after = await env.add(at=5)
    assert await env.drain(at=5) == ids_of([before, dead, after])


@case(PLACE)
async def release_joins_now(env: Environment) -> None:
    held = await env.add()
    await env.take_one(worker=env.name("w"))
    before = await env.add(at=5)
    await env.driver.release(env.name("w"), env.at(5))
    after = await env.add(at=5)
    assert await env.drain(at=5) == ids_of([before, held, after])


@case(PLACE)
async def unblocked_joins_now(env: Environment) -> None:
    first = await env.add()
    held = await env.take_one()
    child = await env.add(depends_on=(first.id,))
    before = await env.add(at=5)
    await env.ack(held, at=5)
    after = await env.add(at=5)
    assert await env.drain(at=5) == ids_of([before, child, after])


@case(SAME_LINE)
async def no_starvation_by_fresh_jobs(env: Environment) -> None:
    """Two new jobs for each one reserved: what was given back, and what expired, still runs."""
    retried, crashed = await env.add_many(2)
    first, _ = await env.take(2, lease=3)
    await env.retry(first, at=1, run_at=2)
    seen: list[str] = []
    for second in range(1, 12):
        await env.add_many(2, at=second)
        held = await env.take_one(at=second, lease=1000)
        seen.append(held.job.id)
    assert retried.id in seen
    assert crashed.id in seen


@case(PLACE, ORDER)
async def same_call_same_time_many(env: Environment) -> None:
    """Arrival is finer than the millisecond, also for what one settle call gives back."""
    jobs = await env.add_many(30)
    taken = await env.take(30)
    for held in reversed(taken):
        await env.retry(held, at=1)
    assert await env.drain(at=1) == ids_of(jobs)[::-1]
