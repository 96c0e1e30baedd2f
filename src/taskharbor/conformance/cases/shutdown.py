"""Shutdown safety: closing with jobs inflight, and calls cancelled at each of their awaits.

A cancelled call was carried out or was not; the caller finds out by repeating it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment, ids_of, opened
from taskharbor.drivers import Ack, Enqueued, Retry

LOSES_NOTHING = (
    "A call that is cancelled, and a driver that is closed with jobs inflight, lose nothing: the jobs "
    "run again after their leases."
)
MOST_AWAITS = 60


class CancelledAt:
    """Awaits a coroutine and cancels the surrounding task at the coroutine's n-th suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], turn: int) -> None:
        self._coroutine = coroutine
        self._turn = turn
        self.reached = False

    def __await__(self) -> Generator[Any, Any, object]:
        inner = self._coroutine.__await__()
        turn = 0
        step: Callable[[], Any] = lambda: next(inner)  # noqa: E731 - replaced by what is thrown in
        while True:
            try:
                awaited = step()
            except StopIteration as stop:
                return stop.value
            if turn == self._turn:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            turn += 1
            try:
                yield awaited
            except BaseException as error:
                thrown = error
                step = lambda: inner.throw(thrown)  # noqa: B023, E731 - used before the next turn
            else:
                step = lambda: next(inner)  # noqa: E731 - replaced in the loop


async def at_each_await(
    call: Callable[[int], Coroutine[Any, Any, object]], after: Callable[[int], Awaitable[None]]
) -> None:
    """Make the call again and again, cancelled one suspension later each time; check after each."""
    for turn in range(MOST_AWAITS):
        cancelled = CancelledAt(call(turn), turn)

        async def run(awaitable: CancelledAt = cancelled) -> object:
            return await awaitable

        answer = (await asyncio.gather(asyncio.create_task(run()), return_exceptions=True))[0]
        assert isinstance(answer, asyncio.CancelledError) or not isinstance(answer, BaseException), answer
        await after(turn)
        if not cancelled.reached:
            return


@case(LOSES_NOTHING)
async def closed_with_jobs_inflight(env: Environment) -> None:
    jobs = await env.add_many(3, group=env.name("g"), group_limit=3)
    async with opened(env.driver.sibling()) as worker:
        assert ids_of(await env.take(by=worker, lease=10)) == ids_of(jobs)
    assert await env.take(at=9.999) == []
    taken = await env.take(at=10)
    assert sorted(ids_of(taken)) == ids_of(jobs)
    assert {(held.job.deliveries, held.job.lost, held.job.attempts) for held in taken} == {(2, 1, 0)}


@case(LOSES_NOTHING)
async def settled_by_another_driver(env: Environment) -> None:
    """A lease belongs to the caller that has the token, not to the connection it came from."""
    await env.add()
    async with opened(env.driver.sibling()) as worker:
        held = (await env.take(by=worker))[0]
    await env.ack(held, at=5)
    assert await env.state(held, 5) == "done"


@case(LOSES_NOTHING, "The call is atomic: all jobs are stored, or none.")
async def cancelled_enqueue(env: Environment) -> None:
    calls: list[list[Any]] = []

    def call(turn: int) -> Coroutine[Any, Any, object]:
        calls.append([env.job() for _ in range(3)])
        return env.driver.enqueue(calls[turn], env.now)

    async def after(turn: int) -> None:
        # Read all three in one call: a server may still carry out the cancelled call between two reads.
        answers = await env.put(*calls[turn])
        whole = [[Enqueued(job.id, existed) for job in calls[turn]] for existed in (True, False)]
        assert answers in whole, "half of a call was stored"
        assert [await env.gone(job) for job in calls[turn]] == [False] * 3

    await at_each_await(call, after)
    assert await env.counts() == {"ready": 3 * len(calls)}
    assert len(await env.drain()) == 3 * len(calls)


@case(LOSES_NOTHING)
async def cancelled_reserve(env: Environment) -> None:
    """The reply is lost, so the lease has to end; then the job runs."""
    jobs = await env.add_many(2, group=env.name("g"), group_limit=2)
    deliveries = [0]

    async def after(turn: int) -> None:
        taken = await env.take(at=turn * 100 + 50)
        assert sorted(ids_of(taken)) == ids_of(jobs)
        seen = max(held.job.deliveries for held in taken)
        assert seen > deliveries[-1]
        deliveries.append(seen)
        for held in taken:
            await env.retry(held, at=turn * 100 + 51, attempts=0)

    await at_each_await(lambda turn: env.take(at=turn * 100, lease=10), after)


@case(LOSES_NOTHING)
async def cancelled_settle(env: Environment) -> None:
    """Sent again, it is accepted: applied now, or applied before."""
    held = []

    async def prepare() -> None:
        await env.add()
        held.append(await env.take_one())

    async def call(turn: int) -> object:
        return await env.driver.settle([Ack(held[turn].lease, b"1")], env.at(1))

    async def after(turn: int) -> None:
        assert await env.state(held[turn], 1) in ("inflight", "done")
        await env.ack(held[turn], at=1, result=b"1")
        assert await env.state(held[turn], 1) == "done"
        await prepare()

    await prepare()
    await at_each_await(call, after)


@case(LOSES_NOTHING)
async def cancelled_retry(env: Environment) -> None:
    """The job is neither lost nor doubled."""
    job = await env.add()
    held = [await env.take_one()]

    async def after(turn: int) -> None:
        await env.done(Retry(held[-1].lease, None, 0), at=1)
        assert await env.all_ids(1) == [job.id]
        assert await env.counts(1) == {"ready": 1}
        held.append(await env.take_one(at=1))
        assert await env.take(at=1) == []

    await at_each_await(lambda turn: env.driver.settle([Retry(held[-1].lease, None, 0)], env.at(1)), after)


@case(LOSES_NOTHING)
async def cancelled_extend(env: Environment) -> None:
    await env.add()
    held = await env.take_one(lease=1000)

    async def after(turn: int) -> None:
        assert await env.state(held, 1) == "inflight"
        assert len(await env.extend(held, at=1, lease=1000)) == 1

    await at_each_await(lambda turn: env.extend(held, at=1, lease=1000), after)
    await env.ack(held, at=2)


@case(LOSES_NOTHING)
async def cancelled_reading(env: Environment) -> None:
    """After a cancelled call the next one gets its own reply, not the reply to the one before."""
    job, other = await env.add(), await env.add(payload=b"other")

    async def after(turn: int) -> None:
        assert (await env.info(other)).job == other
        assert await env.counts() == {"ready": 2}

    await at_each_await(lambda turn: env.driver.inspect(job.id, env.now), after)
    await at_each_await(lambda turn: env.driver.counts(env.now), after)
    await at_each_await(lambda turn: env.driver.list(now=env.now, queue=env.queue), after)


@case(LOSES_NOTHING)
async def cancelled_admin(env: Environment) -> None:
    """Cancel and requeue, cancelled at any await: the job is in one of the two states, and the next call works."""
    job = await env.add()

    async def after(turn: int) -> None:
        assert await env.state(job) in ("ready", "cancelled")
        assert await env.driver.cancel([job.id], env.now) == [None]
        assert await env.driver.requeue([job.id], env.now) == [None]
        assert await env.state(job) == "ready"

    await at_each_await(lambda turn: env.driver.cancel([job.id], env.now), after)
    assert await env.drain() == [job.id]
