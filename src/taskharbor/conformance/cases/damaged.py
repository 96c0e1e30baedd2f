"""Damaged records: what another program broke never stops a worker, and can be seen and deleted."""

from __future__ import annotations

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import DAMAGED_PREFIX, State

PASSED_OVER = (
    "A record that another program damaged never stops a worker: `reserve` passes it over and returns the others."
)
SET_ASIDE = "Once `reserve` has met it, it reads as `dlq` with a reason that begins with `damaged record`."
READABLE = "Listing, counting and inspecting never fail because of it, and it can be deleted."

HOWS = ("type", "payload", "number", "state")


async def read_everything(env: Environment, id: str, at: float = 0) -> None:
    """Every way of reading works, and finds the record."""
    assert isinstance((await env.info(id, at)).state, State)
    assert id in await env.all_ids(at)
    assert sum((await env.counts(at)).values()) == len(await env.all_ids(at))
    for state in State:
        await env.all_ids(at, state=state)
    assert env.queue in await env.driver.queues()
    await env.driver.results([id])


async def set_aside(env: Environment, id: str, at: float = 0) -> None:
    info = await env.info(id, at)
    assert (info.state, info.worker, info.lease_expires_at) == ("dlq", "", None)
    assert info.job.reason.startswith(DAMAGED_PREFIX)
    assert id in await env.all_ids(at, state="dlq")


async def passed_over(env: Environment, how: str) -> None:
    """A damaged record between two good ones."""
    first, broken, last = await env.add_many(3)
    await env.damage(broken.id, how)
    await read_everything(env, broken.id)
    assert await env.taken_ids() == [first.id, last.id]
    await set_aside(env, broken.id)
    await read_everything(env, broken.id)
    assert await env.take(at=100) != []
    await set_aside(env, broken.id, 100)


@case(PASSED_OVER, SET_ASIDE, READABLE)
async def missing_type(env: Environment) -> None:
    await passed_over(env, "type")


@case(PASSED_OVER, SET_ASIDE, READABLE)
async def missing_payload(env: Environment) -> None:
    await passed_over(env, "payload")


@case(PASSED_OVER, SET_ASIDE, READABLE)
async def bad_number(env: Environment) -> None:
    await passed_over(env, "number")


@case(PASSED_OVER, SET_ASIDE, READABLE)
async def unknown_state(env: Environment) -> None:
    await passed_over(env, "state")


@case(PASSED_OVER)
async def one_at_a_time(env: Environment) -> None:
    """A limit of one still finds the good job behind many damaged ones."""
    jobs = await env.add_many(8)
    for job, how in zip(jobs[:7], HOWS * 2, strict=False):
        await env.damage(job.id, how)
    assert await env.taken_ids(1) == [jobs[7].id]


@case(PASSED_OVER, SET_ASIDE)
async def in_a_group(env: Environment) -> None:
    """It neither blocks its group nor takes capacity of it."""
    for how in HOWS:
        queue = env.q(how)
        broken, first, second = await env.add_many(3, queue=queue, group=env.name("g"))
        await env.damage(broken.id, how)
        held = await env.take(queues=[queue])
        assert [item.job.id for item in held] == [first.id]
        await env.ack(held[0])
        assert await env.taken_ids(queues=[queue]) == [second.id]
        assert await env.take(queues=[queue]) == []
        await set_aside_in(env, broken.id, queue)


async def set_aside_in(env: Environment, id: str, queue: str) -> None:
    info = await env.info(id)
    assert (info.state, info.job.reason.startswith(DAMAGED_PREFIX)) == ("dlq", True)
    assert id in await env.all_ids(queue=queue, state="dlq")


@case(PASSED_OVER)
async def damaged_while_scheduled(env: Environment) -> None:
    for how in HOWS:
        job = await env.add(run_at=env.at(5))
        await env.damage(job.id, how)
        await read_everything(env, job.id, 1)
    good = await env.add()
    assert await env.taken_ids(at=10) == [good.id]
    assert await env.counts(10) == {"dlq": 4, "inflight": 1}


@case(PASSED_OVER)
async def damaged_while_inflight(env: Environment) -> None:
    """Its lease ends like any other; then it is set aside."""
    for how in HOWS:
        queue = env.q(how)
        broken = await env.add(queue=queue)
        await env.take_one(queues=[queue], lease=5)
        await env.damage(broken.id, how)
        await env.info(broken)
        good = await env.add(queue=queue, at=6)
        assert await env.taken_ids(at=10, queues=[queue]) == [good.id]
        await set_aside_in(env, broken.id, queue)


@case(READABLE)
async def deleted(env: Environment) -> None:
    """Before reserve has met it, and after."""
    for how in HOWS:
        before, after = await env.add_many(2)
        await env.damage(before.id, how)
        assert await env.driver.delete([before.id]) == [None]
        await env.damage(after.id, how)
        assert await env.take() == []
        assert await env.driver.delete([after.id]) == [None]
    assert await env.counts() == {}
    assert await env.all_ids() == []
