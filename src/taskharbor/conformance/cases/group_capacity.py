"""Capacity of a group: whatever ends a lease frees its place in the group, and never a second time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Ack, Reserved, Retry

FREED = (
    "The capacity that a lease takes is freed exactly once, by what ends the lease: settle, expiry, "
    "release, cancel or delete."
)
CANCELLED = "A job cancelled while inflight frees the capacity of its group, and its worker gets `JobNotInflight`."
DELETED = "A job deleted while inflight frees the capacity of its group, and its worker gets `JobNotFound`."
WORKER = "worker"


async def held_of_three(env: Environment, queue: str, lease: float = 1000) -> Reserved:
    """A group of limit 1 with three jobs, the first of them leased by WORKER."""
    await env.add_many(3, queue=queue, group="g")
    return await env.take_one(queues=[queue], worker=env.name(WORKER), lease=lease)


async def running(env: Environment, queue: str, at: float) -> list[Reserved]:
    return await env.take(queues=[queue], at=at, lease=1000)


def endings(env: Environment) -> dict[str, Callable[[Reserved], Awaitable[object]]]:
    """Every way to end a lease at 5, by name."""
    driver, now = env.driver, env.at(5)
    return {
        "ack": lambda held: driver.settle([Ack(held.lease)], now),
        "retry": lambda held: driver.settle([Retry(held.lease, env.at(900), 1)], now),
        "fail": lambda held: env.fail(held, at=5),
        "drop": lambda held: env.drop(held, at=5),
        "release": lambda held: driver.release(env.name(WORKER), now),
        "cancel": lambda held: driver.cancel([held.job.id], now),
        "delete": lambda held: driver.delete([held.job.id]),
    }


@case(FREED)
async def freed_by_everything(env: Environment) -> None:
    for name, end in endings(env).items():
        queue = env.q(name)
        held = await held_of_three(env, queue)
        assert await running(env, queue, 4) == []
        await end(held)
        taken = await running(env, queue, 5)
        assert len(taken) == 1, f"{name} freed no slot"
        assert taken[0].job.id != held.job.id
        assert await running(env, queue, 5) == [], f"{name} freed two slots"


@case(FREED)
async def freed_once_whatever_follows(env: Environment) -> None:
    """Each ending, then all the others: the place of the job that runs now stays taken."""
    for name, end in endings(env).items():
        queue = env.q(name)
        held = await held_of_three(env, queue)
        await end(held)
        assert len(await running(env, queue, 5)) == 1
        for other in ("ack", "retry", "release", "cancel", "cancel", "delete", "delete"):
            await endings(env)[other](held)
            assert await running(env, queue, 6) == [], f"{other} after {name} freed a slot again"


@case(FREED)
async def freed_by_expiry(env: Environment) -> None:
    held = await held_of_three(env, env.queue, lease=5)
    assert await running(env, env.queue, 4.999) == []
    assert len(await running(env, env.queue, 5)) == 1
    assert await running(env, env.queue, 6) == []
    assert (await env.state(held, 6)) == "ready"


@case(FREED)
async def expiry_then_anything_frees_no_second_place(env: Environment) -> None:
    """The place of the expired job went to the next one: ending the old lease again frees nothing."""
    for name, end in endings(env).items():
        if name in ("fail", "drop"):
            continue
        queue = env.q(name)
        held = await held_of_three(env, queue, lease=5)
        assert len(await running(env, queue, 5)) == 1
        await end(held)
        assert await running(env, queue, 6) == [], f"{name} after expiry freed a slot"


@case(FREED)
async def expiry_that_no_reserve_has_met(env: Environment) -> None:
    """The lease is over, no reserve has come since, and then the job is cancelled, deleted or acked."""
    for name in ("cancel", "delete", "release", "ack"):
        queue = env.q(name)
        held = await held_of_three(env, queue, lease=5)
        await endings(env)[name](held)
        assert len(await running(env, queue, 6)) == 1
        assert await running(env, queue, 6) == [], f"{name} of an expired job freed two slots"


@case(FREED)
async def takeover_then_stale_ack(env: Environment) -> None:
    """Expiry, takeover of the same job, and the first worker's ack: one place, one lease."""
    await env.add(group="g")
    zombie = await env.take_one(lease=5)
    newest = await env.take_one(at=5, lease=100)
    await env.add_many(2, group="g", at=6)
    for outcome in (Ack(zombie.lease), Retry(zombie.lease, None, 1)):
        await env.settle(outcome, at=7)
        assert await env.take(at=7) == []
    await env.ack(newest, at=8)
    assert len(await env.take(at=8)) == 1


@case(FREED)
async def many_expiries_at_once(env: Environment) -> None:
    """A group of three whose workers all crash has three places again, not six or none."""
    await env.add_many(9, group="g", group_limit=3)
    for turn in range(4):
        assert len(await env.take(at=turn * 10, lease=10)) == 3
        assert await env.take(at=turn * 10 + 9.999, lease=10) == []


@case(FREED)
async def one_of_many_expires(env: Environment) -> None:
    await env.add_many(9, group="g", group_limit=3)
    await env.take(1, lease=5)
    long = await env.take(2, lease=50)
    assert len(await env.take(at=5, lease=50)) == 1
    await env.ack(long[0], at=6)
    assert len(await env.take(at=6, lease=50)) == 1
    assert await env.take(at=6, lease=50) == []


@case(FREED, CANCELLED)
async def cancelled_while_inflight(env: Environment) -> None:
    held = await held_of_three(env, env.queue)
    await env.driver.cancel([held.job.id], env.at(1))
    answers = await env.settle(Ack(held.lease), at=1)
    assert [type(answer).__name__ for answer in answers] == ["JobNotInflight"]
    assert len(await running(env, env.queue, 1)) == 1
    assert await running(env, env.queue, 1) == []


@case(FREED, CANCELLED)
async def flow_cancelled_while_inflight(env: Environment) -> None:
    flow = env.name("flow")
    first = await env.add(group="g", flow_id=flow)
    await env.take()
    second = await env.add(group="g")
    await env.add(group="g")
    assert await env.driver.cancel_flow(flow, env.at(1)) == 1
    assert await env.driver.cancel_flow(flow, env.at(1)) == 0
    await env.driver.cancel([first.id], env.at(1))
    assert await env.taken_ids(at=1) == [second.id]
    assert await env.take(at=1) == []


@case(FREED, DELETED)
async def deleted_while_inflight(env: Environment) -> None:
    held = await held_of_three(env, env.queue)
    assert await env.driver.delete([held.job.id]) == [None]
    answers = await env.settle(Ack(held.lease), at=1)
    assert [type(answer).__name__ for answer in answers] == ["JobNotFound"]
    assert len(await running(env, env.queue, 1)) == 1
    assert await running(env, env.queue, 1) == []


@case(FREED)
async def cancelled_while_waiting_frees_nothing(env: Environment) -> None:
    """Only a job that is inflight takes a place."""
    held = await held_of_three(env, env.queue)
    ready = [id for id in await env.all_ids(1) if id != held.job.id]
    await env.driver.cancel(ready[:1], env.at(1))
    await env.driver.delete(ready[:1])
    await env.driver.delete(ready[1:])
    await env.add(group="g", at=1)
    assert await env.take(at=2) == []
    await env.ack(held, at=3)
    assert len(await env.take(at=3)) == 1
