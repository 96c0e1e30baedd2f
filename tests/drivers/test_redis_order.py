"""The order of the line on Redis: exact while `now` does not go back; never lost, early or twice when it does."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskharbor.drivers import Driver, JobRecord, Retry
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.times import from_ms
from tests import lanes
from tests.drivers.redis_stores import emptied

pytestmark = pytest.mark.lane("redis")

START = 1_800_000_000_000
MINUTE = timedelta(minutes=1)
BOUND = 100  # due jobs, and as many expired ones, that one call lines up; see SLICE in lua/lib/50_placement.lua


def told(story: Callable[[Driver], Awaitable[list[str]]], model: bool = False) -> list[str]:
    async def main() -> list[str]:
        driver: Driver = MemoryDriver("memory://") if model else RedisDriver(f"{emptied()}?checks=0")
        await driver.open()
        try:
            return await story(driver)
        finally:
            await driver.close()

    return asyncio.run(main())


def jobs(names: list[str], run_at: int | None = None) -> list[JobRecord]:
    due = from_ms(START + run_at) if run_at is not None else None
    return [JobRecord(id=name, type="t", run_at=due) for name in names]


async def drained(driver: Driver, at: int) -> list[str]:
    """All that can be had, a few at a time."""
    found: list[str] = []
    while taken := await driver.reserve(["default"], from_ms(START + at), MINUTE, 7):
        found += [held.job.id for held in taken]
    return found


@pytest.mark.parametrize("ahead", [1, 5, 64, 200], ids=lambda ahead: f"{ahead} ahead")
def test_a_clock_that_is_behind_goes_to_the_end(ahead: int) -> None:
    async def story(driver: Driver) -> list[str]:
        for at, name, count in ((0, "a", 2), (9, "b", ahead), (5, "c", 3), (9, "d", 1)):
            await driver.enqueue(jobs([f"{name}{number:03}" for number in range(count)]), from_ms(START + at))
        return await drained(driver, 10)

    found = told(story)
    assert found == sorted(found)
    assert len(found) == ahead + 6


@pytest.mark.parametrize("before", ["enqueue", "put", "reserve", "nobody"])
def test_what_fell_due_or_expired_between_others_stands_between_them(before: str) -> None:
    """As many as one call lines up, by turns due and expired, whichever call is the first that could have noticed."""

    async def story(driver: Driver) -> list[str]:
        held = [f"h{number:03}" for number in range(BOUND)]
        for number, name in enumerate(held):  # leases that end at 1000, 1002, …
            await driver.enqueue(jobs([name]), from_ms(START + number))
            lease = timedelta(milliseconds=1000 + number)
            assert len(await driver.reserve(["default"], from_ms(START + number), lease, 1)) == 1
        for number in range(BOUND):  # due at 1001, 1003, …
            await driver.enqueue(jobs([f"s{number:03}"], 1001 + 2 * number), from_ms(START + 500))
        await driver.enqueue(jobs(["first"]), from_ms(START + 999))
        if before == "reserve":
            (first,) = await driver.reserve(["default"], from_ms(START + 2000), MINUTE, 1)
            await driver.enqueue(jobs(["last"]), from_ms(START + 2001))
            return [first.job.id, *await drained(driver, 2002)]
        if before != "nobody":
            last = JobRecord(id="last", type="t", idempotency_key="k" if before == "enqueue" else None)
            await driver.enqueue([last], from_ms(START + 2000))
        return await drained(driver, 2002)

    found = told(story)
    assert found == told(story, model=True)
    assert found[:3] == ["first", "h000", "s000"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "schedule", "take", "retry"]),
        st.integers(0, 6),  # ms that pass
        st.integers(1, 3),  # how many
        st.integers(1, 9),  # ms of a lease, or until it is due
    ),
    max_size=40,
)


@settings(max_examples=lanes.figure(test=30, full=200))
@given(steps)
def test_any_history_whose_now_does_not_go_back_is_served_as_by_memory(
    history: list[tuple[str, int, int, int]],
) -> None:
    async def story(driver: Driver) -> list[str]:
        at, seen, held = 0, [], []
        for index, (what, passed, count, span) in enumerate(history):
            at += passed
            names = [f"{(index * 7919) % 997:03}{number}" for number in range(count)]
            if what == "put":
                await driver.enqueue(jobs(names), from_ms(START + at))
            elif what == "schedule":
                await driver.enqueue(jobs(names, at + span), from_ms(START + at))
            elif what == "take":
                held = await driver.reserve(["default"], from_ms(START + at), timedelta(milliseconds=span), count)
                seen += [f"{at} {one.job.id}" for one in held]
            elif held:
                one = held.pop()
                when = from_ms(START + at + span) if count == 1 else None
                await driver.settle([Retry(one.lease, when, one.job.attempts)], from_ms(START + at))
        return seen + await drained(driver, at + 100)

    assert told(story) == told(story, model=True)


def test_each_of_many_queues_gets_its_turn() -> None:
    names = [f"q{number}" for number in range(9000)]

    async def story(driver: Driver) -> list[str]:
        deep, others = names[0], (names[4500], names[-1])
        for queue, count in ((deep, 200), *((other, 1) for other in others)):
            await driver.enqueue(
                [JobRecord(id=f"{queue}-{n}", type="t", queue=queue) for n in range(count)], from_ms(START)
            )
        found: list[str] = []
        while not set(others) <= set(found):
            taken = await driver.reserve(names, from_ms(START), MINUTE, 1)
            assert taken, "a job was left"
            found += [held.job.queue for held in taken]
        assert len(found) <= 3 * 9000 // 250
        return found

    told(story)
