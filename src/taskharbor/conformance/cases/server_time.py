"""The store's clock, and opening and closing."""

from __future__ import annotations

from datetime import timedelta

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, opened

CLOCK = "`server_time()` is an aware UTC datetime that does not go back."
SIBLING = (
    "`sibling()` makes another driver, not yet opened, on the same store; `open` and `close` may be "
    "called again without harm."
)


@case(CLOCK)
async def aware_and_utc(env: Environment) -> None:
    moment = await env.driver.server_time()
    assert moment.utcoffset() == timedelta(0)
    assert 2020 < moment.year < 2200


@case(CLOCK)
async def never_back(env: Environment) -> None:
    other = await env.sibling()
    seen = [await (other if turn % 2 else env.driver).server_time() for turn in range(50)]
    assert seen == sorted(seen)


@case(SIBLING)
async def sibling_shares_the_store(env: Environment) -> None:
    job = await env.add()
    other = await env.sibling()
    assert (await other.inspect(job.id, env.now)).job == job
    third = other.sibling()
    async with opened(third):
        assert await env.taken_ids(by=third) == [job.id]
    assert await env.state(job) == "inflight"


@case(SIBLING)
async def closing_a_sibling_closes_no_other(env: Environment) -> None:
    other = await env.sibling()
    await other.close()
    job = await env.add()
    assert await env.taken_ids() == [job.id]


@case(SIBLING)
async def open_and_close_again(env: Environment) -> None:
    other = env.driver.sibling()
    await other.close()
    await other.open()
    await other.open()
    job = env.job()
    await other.enqueue([job], env.now)
    await other.close()
    await other.close()
    await other.open()
    assert (await other.inspect(job.id, env.now)).job == job
    await other.close()


@case(SIBLING)
async def opening_again_loses_nothing(env: Environment) -> None:
    job = await env.add()
    held = await env.take_one()
    await env.driver.open()
    await env.ack(held, result=b"1")
    assert await env.driver.results([job.id]) == {job.id: b"1"}
