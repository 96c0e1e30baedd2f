"""Concurrency: many callers at once, in one event loop and in threads, over siblings on one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from taskharbor.conformance.case import case
from taskharbor.conformance.environment import Environment
from taskharbor.drivers import Ack, Driver, Fail, Reserved, Retry

ONCE = "Two callers never have valid leases on the same job, whatever they call at the same time."
ONE_WINS = "Of two calls that settle the same delivery differently, exactly one wins."
LIMIT = "Within a queue, never more jobs of one group are inflight than its limit."
KNOWN = "An idempotency key already known in that queue writes nothing: the known id is returned with `existed=True`."
LEASE = timedelta(seconds=10)


def each_once(batches: list[list[Reserved]]) -> int:
    """Assert that no job was reserved twice; return how many were reserved."""
    seen = Counter(held.job.id for batch in batches for held in batch)
    assert [id for id, times in seen.items() if times > 1] == []
    return len(seen)


@case(ONCE)
async def reserve_by_many_siblings(env: Environment) -> None:
    await env.add_many(60)
    drivers = await env.siblings(6)
    batches = await asyncio.gather(*(env.take(3, by=driver) for driver in drivers for _ in range(5)))
    assert each_once(batches) == 60


@case(ONCE)
async def reserve_in_threads(env: Environment) -> None:
    await env.add_many(80)

    async def work(driver: Driver) -> list[Reserved]:
        taken: list[Reserved] = []
        while batch := await driver.reserve([env.queue], env.now, LEASE, 3):
            taken += batch
        return taken

    assert each_once(await env.in_threads([work] * 4)) == 80


@case(ONCE)
async def takeover_by_many(env: Environment) -> None:
    """Expired jobs are taken over once, and counted once."""
    await env.add_many(20)
    await env.take(lease=10)
    drivers = await env.siblings(4)
    batches = await asyncio.gather(*(env.take(10, at=10, by=driver) for driver in drivers))
    assert each_once(batches) == 20
    assert {(held.job.lost, held.job.deliveries) for batch in batches for held in batch} == {(1, 2)}


@case(ONCE)
async def whole_life_in_threads(env: Environment) -> None:
    """Enqueue, reserve and settle in all threads at once: every job ends, each delivery counts once."""

    def worker(number: int) -> Callable[[Driver], Awaitable[int]]:
        async def work(driver: Driver) -> int:
            acked = 0
            for turn in range(15):
                await driver.enqueue([env.job(id=env.name(f"w{number}-{turn:03d}"))], env.now)
                for held in await driver.reserve([env.queue], env.now, LEASE, 2):
                    first = held.job.deliveries == 1
                    outcome = Retry(held.lease, None, 1) if first else Ack(held.lease)
                    assert await driver.settle([outcome], env.now) == [None]
                    acked += not first
            return acked

        return work

    acked = sum(await env.in_threads([worker(number) for number in range(4)]))
    while batch := await env.take(10):
        for held in batch:
            if held.job.deliveries == 1:
                await env.retry(held)
            else:
                assert held.job.deliveries == 2
                await env.ack(held)
                acked += 1
    assert acked == 60
    assert await env.counts() == {"done": 60}


@case(LIMIT, ONCE)
async def group_limit_under_fire(env: Environment) -> None:
    await env.add_many(40, group=env.name("g"), group_limit=3)
    drivers = await env.siblings(5)
    for _ in range(5):
        batches = await asyncio.gather(*(env.take(2, by=driver) for driver in drivers))
        assert each_once(batches) == 3
        flat = [held for batch in batches for held in batch]
        answers = await asyncio.gather(
            *(drivers[index].settle([Ack(held.lease)], env.now) for index, held in enumerate(flat))
        )
        assert answers == [[None]] * 3


@case(LIMIT, ONCE)
async def group_limit_in_threads(env: Environment) -> None:
    await env.add_many(40, group=env.name("g"), group_limit=2)

    async def work(driver: Driver) -> int:
        done = 0
        for _ in range(200):
            batch = await driver.reserve([env.queue], env.now, LEASE, 5)
            assert len(batch) <= 2
            running = await driver.counts(env.now)
            assert running[env.queue].get("inflight", 0) <= 2
            done += len(batch)
            assert await driver.settle([Ack(held.lease) for held in batch], env.now) == [None] * len(batch)
            if running[env.queue].get("done", 0) == 40:
                break
        return done

    assert sum(await env.in_threads([work] * 3)) <= 40
    await env.drain()
    assert await env.counts() == {"done": 40}


@case(ONE_WINS)
async def two_settles(env: Environment) -> None:
    one, two = await env.siblings(2)
    for turn in range(15):
        await env.add()
        held = await env.take_one()
        answers = await asyncio.gather(
            one.settle([Ack(held.lease, b"1")], env.at(1)),
            two.settle([Fail(held.lease, "dead", 1, env.at(1))], env.at(1)),
        )
        names = [type(answer).__name__ for (answer,) in answers]
        assert sorted(names) == ["JobNotInflight", "NoneType"], f"turn {turn}"
        assert await env.state(held, 1) == ("done" if names[0] == "NoneType" else "dlq")


@case(ONE_WINS)
async def settles_in_threads(env: Environment) -> None:
    jobs = await env.add_many(20)
    taken = await env.take()

    def settle_all(kind: int) -> Callable[[Driver], Awaitable[list[bool]]]:
        async def work(driver: Driver) -> list[bool]:
            accepted = []
            for held in taken:
                outcome = Ack(held.lease) if kind == 0 else Retry(held.lease, None, kind)
                accepted.append(await driver.settle([outcome], env.at(1)) == [None])
            return accepted

        return work

    acked, retried = await env.in_threads([settle_all(0), settle_all(1)])
    assert [one != other for one, other in zip(acked, retried, strict=True)] == [True] * len(jobs)
    assert (await env.counts(1)).get("done", 0) == sum(acked)


@case(KNOWN)
async def one_key_sixty_four_times(env: Environment) -> None:
    drivers = await env.siblings(8)
    jobs = [env.job(idempotency_key="key") for _ in range(64)]
    answers = await asyncio.gather(*(drivers[index % 8].enqueue([job], env.now) for index, job in enumerate(jobs)))
    assert len({answer.id for (answer,) in answers}) == 1
    assert sum(not answer.existed for (answer,) in answers) == 1
    assert await env.counts() == {"ready": 1}


@case(KNOWN)
async def one_key_in_threads(env: Environment) -> None:
    jobs = {name: [env.job(idempotency_key=f"key{turn}") for turn in range(20)] for name in range(4)}

    def worker(name: int) -> Callable[[Driver], Awaitable[list[tuple[str, bool]]]]:
        async def work(driver: Driver) -> list[tuple[str, bool]]:
            order = jobs[name] if name % 2 else jobs[name][::-1]
            answers = [await driver.enqueue([job], env.now) for job in order]
            return [(answer.id, answer.existed) for (answer,) in (answers if name % 2 else answers[::-1])]

        return work

    for column in zip(*await env.in_threads([worker(name) for name in jobs]), strict=True):
        assert len({id for id, _ in column}) == 1
        assert sum(not existed for _, existed in column) == 1


@case(KNOWN, "The call is atomic: all jobs are stored, or none.")
async def same_keys_in_opposite_order(env: Environment) -> None:
    """Calls that touch the same keys in opposite orders do not block each other."""
    drivers = await env.siblings(6)
    keys = [f"key{number}" for number in range(8)]
    calls = []
    for index, driver in enumerate(drivers):
        jobs = [env.job(idempotency_key=key) for key in (keys if index % 2 else keys[::-1])]
        calls.append(driver.enqueue(jobs, env.now))
    answers = await asyncio.gather(*calls)
    assert sum(not answer.existed for call in answers for answer in call) == 8
    assert await env.counts() == {"ready": 8}
