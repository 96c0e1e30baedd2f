"""Repeating: settle may be sent again after a lost reply, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable

from taskharbor.conformance.case import case
from taskharbor.conformance.cases.fence import KINDS
from taskharbor.conformance.environment import Environment, refusals
from taskharbor.drivers import Ack, Cancelled, Fail, Lease, Outcome, Retry

SAME = (
    "Repeating an outcome of the same kind with the token that settled the job returns None and "
    "changes nothing, until the job is reserved again."
)
OTHER = "Another kind of outcome with that token is `JobNotInflight`."


@case(SAME, OTHER)
async def every_kind_after_every_kind(env: Environment) -> None:
    for settled_as, kind in enumerate(KINDS):
        await env.add(queue=env.q(f"q{settled_as}"))
        held = await env.take_one(queues=[env.q(f"q{settled_as}")])
        await env.done(kind(held.lease), at=1)
        before = await env.info(held, 1)
        answers = await env.settle(*(other(held.lease) for other in KINDS), at=2)
        assert refusals(answers) == ["ok" if other == settled_as else "JobNotInflight" for other in range(len(KINDS))]
        assert await env.info(held, 1) == before


@case(SAME)
async def repeated_with_other_values(env: Environment) -> None:
    """The first one counts, whatever the second says."""
    pairs: list[tuple[Callable[[Lease], Outcome], Callable[[Lease], Outcome]]] = [
        (lambda lease: Ack(lease, b"1"), lambda lease: Ack(lease, b"2")),
        (lambda lease: Retry(lease, None, 1, "e1"), lambda lease: Retry(lease, env.at(99), 2, "e2", env.at(2))),
        (lambda lease: Fail(lease, "r1", 1, env.at(1)), lambda lease: Fail(lease, "r2", 2, env.at(2))),
        (lambda lease: Cancelled(lease, "r1"), lambda lease: Cancelled(lease, "r2")),
    ]
    for number, (first, second) in enumerate(pairs):
        queue = env.q(f"q{number}")
        await env.add(queue=queue)
        held = await env.take_one(queues=[queue])
        await env.done(first(held.lease), at=1)
        before = await env.info(held, 1)
        await env.done(second(held.lease), at=2)
        assert await env.info(held, 1) == before


@case(SAME)
async def long_after_the_lease(env: Environment) -> None:
    """Its lease is over by then, which does not matter any more."""
    await env.add_many(2)
    first, second = await env.take(2, lease=10)
    await env.ack(first, at=5)
    await env.retry(second, at=5, run_at=5000)
    assert refusals(await env.settle(Ack(first.lease), Retry(second.lease, None, 1), at=1000)) == ["ok", "ok"]
    assert await env.states(first, second, at=1000) == ["done", "scheduled"]


@case(SAME)
async def until_reserved_again(env: Environment) -> None:
    await env.add()
    first = await env.take_one()
    await env.retry(first, at=1)
    await env.take_one(at=2)
    assert refusals(await env.settle(Retry(first.lease, None, 1), at=3)) == ["LeaseMismatch"]


@case(SAME)
async def retry_twice_is_one_job(env: Environment) -> None:
    job = await env.add(group=env.name("g"))
    held = await env.take_one()
    assert refusals(await env.settle(*[Retry(held.lease, None, 1)] * 3, at=1)) == ["ok"] * 3
    await env.done(Retry(held.lease, None, 1), at=2)
    assert await env.taken_ids(at=2) == [job.id]
    assert await env.counts(2) == {"inflight": 1}


@case(SAME)
async def repeated_ack_releases_once(env: Environment) -> None:
    """A second ack must not count the dependency down again."""
    first, second = await env.add_many(2)
    join = await env.add(depends_on=(first.id, second.id))
    held = await env.take_one()
    for _ in range(3):
        await env.ack(held, at=1)
    assert await env.state(join, 1) == "blocked"
    assert await env.taken_ids(at=1) == [second.id]


@case(SAME)
async def repeated_ack_spawns_once(env: Environment) -> None:
    await env.add()
    held = await env.take_one()
    child = env.job()
    await env.done(Ack(held.lease, None, (child,)), at=1)
    await env.done(Ack(held.lease, None, (child,)), at=1)
    await env.done(Ack(held.lease, None, (env.job(),)), at=1)
    assert await env.all_ids(1) == [held.job.id, child.id]


@case(SAME)
async def repeated_after_requeue(env: Environment) -> None:
    """A repeated Fail does not end the job again after it was requeued."""
    for name, kind in zip(("dead", "dropped"), KINDS[2:], strict=True):
        job = await env.add(queue=env.q(name))
        held = await env.take_one(queues=[job.queue])
        await env.done(kind(held.lease), at=1)
        await env.driver.requeue([job.id], env.at(2))
        await env.done(kind(held.lease), at=3)
        assert await env.state(job, 3) == "ready"


@case(
    SAME,
    (
        "The capacity that a lease takes is freed exactly once, by what ends the lease: settle, expiry, "
        "release, cancel or delete."
    ),
)
async def repeated_outcome_frees_no_other_slot(env: Environment) -> None:
    group = env.name("g")
    for name, kind in zip("abcd", KINDS, strict=True):
        queue = env.q(name)
        await env.add_many(4, group=group, queue=queue)
        first = await env.take_one(queues=[queue])
        await env.done(kind(first.lease), at=1)
        second = await env.take_one(at=1, queues=[queue])
        await env.settle(kind(first.lease), kind(first.lease), at=1)
        assert await env.take(at=1, queues=[queue]) == []
        await env.ack(second, at=1)
        assert len(await env.take(at=1, queues=[queue])) == 1
