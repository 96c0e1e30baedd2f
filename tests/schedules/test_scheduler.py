"""The worker's scheduler: declares at its start, fires beside the jobs, costs one look a second, survives outages."""

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from taskharbor import Harbor, State
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobSucceeded, ScheduleChanged, ScheduleFired, StoreBack, StoreLost
from taskharbor.testing import Faults, ManualClock
from taskharbor.worker import Worker
from taskharbor.worker.scheduler import IDLE_INTERVAL_S
from tests.worker.workbench import Bench, bench_test, heard_test


class Counting(MemoryDriver):
    """Counts calls, and notes at which moments a worker looked for due schedules."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls: Counter[str] = Counter()
        self.looks: list[datetime] = []

    def sibling(self) -> Any:
        return self

    async def close(self) -> None:
        return

    async def due_schedules(self, queues: Any, now: datetime, **options: Any) -> Any:
        self.looks.append(now)
        self.calls["due_schedules"] += 1
        return await super().due_schedules(queues, now, **options)

    async def schedules(self, **options: Any) -> Any:
        self.calls["schedules"] += 1
        return await super().schedules(**options)

    async def change_schedules(self, changes: Any, now: datetime) -> Any:
        self.calls["change_schedules"] += 1
        return await super().change_schedules(changes, now)

    async def reserve(self, queues: Any, now: datetime, lease_for: Any, limit: int, worker: str = "") -> Any:
        self.calls["reserve"] += 1
        return await super().reserve(queues, now, lease_for, limit, worker)


def program(bench: Bench, **options: Any) -> tuple[Harbor, Worker]:
    """A harbor with a task on the bench's store, and a worker of it."""
    bench._loop = asyncio.get_running_loop()
    harbor = Harbor(bench.driver, clock=bench.clock, observers=[bench])

    @harbor.task(name="ping")
    async def ping(host: str = "a") -> str:
        return host

    harbor.schedule("ping", ping.s(), every=15)
    return harbor, harbor.worker(heart="loop", **options)


async def settled(clock: ManualClock, sleepers: int = 3) -> None:
    """Until everything that the worker began has come to rest."""
    for _ in range(200):
        await asyncio.sleep(0)
    while clock.sleepers < sleepers:
        await asyncio.sleep(0)


async def advance(clock: ManualClock, seconds: float, step: float = 0.5) -> None:
    """Let time pass in small steps, and the worker come to rest after each."""
    for _ in range(round(seconds / step)):
        clock.advance(step)
        for _ in range(40):
            await asyncio.sleep(0)


@bench_test
async def test_a_worker_declares_fires_and_runs(bench: Bench) -> None:
    harbor, worker = program(bench)
    async with bench.running(worker):
        await bench.heard(ScheduleChanged)
        await settled(bench.clock)
        for number in (1, 2, 3):
            await advance(bench.clock, 15)
            await bench.heard(JobSucceeded, number)
        assert [event.late for event in bench.of(ScheduleFired)] == [0, 0, 0]
    assert (await harbor.schedules.aget("ping")).fired == 3
    assert len(bench.of(ScheduleChanged)) == 1


@bench_test
async def test_the_declaration_is_stored_once_for_a_worker_object(bench: Bench) -> None:
    harbor, worker = program(bench)
    for _ in range(2):
        async with bench.running(worker):
            await bench.heard(ScheduleChanged)
            await settled(bench.clock)
            await harbor.schedules.adelete("ping") if _ == 0 else None
    assert [info.deleted async for info in harbor.schedules.list()] == [True]


@bench_test
async def test_one_without_schedules_neither_declares_nor_looks(bench: Bench) -> None:
    bench.driver = driver = Counting("memory://")
    _, worker = program(bench, schedules=False)
    async with bench.running(worker):
        await settled(bench.clock)
        await advance(bench.clock, 20)
    assert set(driver.calls) == {"reserve"}


@pytest.mark.parametrize("number", [0, 1, 300])
async def test_an_idle_worker_looks_once_a_second_at_most(number: int):
    """With slots that come every few milliseconds somewhere ahead, too: those of other queues and far ones."""
    driver = Counting("memory://")
    bench = Bench(driver)
    harbor = Harbor(driver, clock=bench.clock)

    @harbor.task(name="ping")
    async def ping() -> None: ...

    for each in range(number):
        bench.clock.advance(0.01)
        await harbor.schedules.aadd(f"s{each}", ping.s(), every=3600, start_at=bench.clock.now())
    start = bench.clock.now()
    driver.calls.clear()
    worker = bench.worker(queues=["default"])
    async with bench.running(worker):
        await settled(bench.clock)
        await advance(bench.clock, 60, step=0.25)
    gaps = [(b - a).total_seconds() for a, b in zip(driver.looks, driver.looks[1:], strict=False)]
    assert min(gaps) >= 1.0
    assert driver.looks[0] == start
    assert driver.calls["due_schedules"] == len(driver.looks) <= (61 if number else 60 / (IDLE_INTERVAL_S * 0.8) + 1)
    assert driver.calls["schedules"] <= 2  # whether one lies ahead of the clock: once a minute
    assert driver.calls["change_schedules"] == 0


async def test_many_slots_at_odd_moments_cost_one_look_a_second_too():
    driver = Counting("memory://")
    bench = Bench(driver)
    harbor = Harbor(driver, clock=bench.clock)

    @harbor.task(name="ping")
    async def ping() -> None: ...

    for each in range(100):
        bench.clock.advance(0.037)
        await harbor.schedules.aadd(f"s{each}", ping.s(), every=5, overlap="allow")
    driver.calls.clear()
    worker = bench.worker(queues=["default"])
    async with bench.running(worker):
        await settled(bench.clock)
        await advance(bench.clock, 20, step=0.1)
    assert len(driver.looks) <= 22
    late = [event.late for event in bench.of(ScheduleFired)]
    assert max(late) <= 1.0
    assert len(late) >= 300


async def test_reserving_is_the_same_with_schedules_and_without():
    async def calls(scheduled: int) -> int:
        driver = Counting("memory://")
        bench = Bench(driver)
        harbor = Harbor(driver, clock=bench.clock)

        @harbor.task(name="ping")
        async def ping() -> None: ...

        for each in range(scheduled):
            await harbor.schedules.aadd(f"s{each}", ping.s(), every=3600)
        for _ in range(50):
            await ping.aenqueue()
        worker = harbor.worker(heart="loop")
        await worker.arun(until_empty=True)
        return driver.calls["reserve"]

    assert await calls(0) == await calls(200)


@bench_test
async def test_an_outage_is_reported_once_and_nothing_is_lost(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap("memory://")
    harbor, worker = program(bench)
    faults.fail("schedules")  # as it declares
    async with bench.running(worker):
        (lost,) = await bench.heard(StoreLost)
        assert lost.doing == "schedules"
        await settled(bench.clock)
        await advance(bench.clock, 2)
        await bench.heard(ScheduleChanged)
        await bench.heard(StoreBack)
        faults.fail("due_schedules", times=3)
        await advance(bench.clock, 40)
        await bench.heard(ScheduleFired, 2)
        await bench.heard(StoreBack, 2)
    assert (await harbor.schedules.aget("ping")).missed == 0
    assert len(bench.of(StoreLost)) == 2


@heard_test
async def test_a_stop_ends_a_look_that_hangs(bench: Bench) -> None:
    class Hanging(Counting):
        entered = asyncio.Event()

        async def due_schedules(self, *args: Any, **options: Any) -> Any:
            self.entered.set()
            await asyncio.Event().wait()

    bench.driver = driver = Hanging("memory://")
    worker = bench.worker()
    running = asyncio.create_task(worker.arun())
    await driver.entered.wait()
    worker.hurry()
    await running


@bench_test
async def test_a_worker_that_runs_until_nothing_is_left_fires_what_is_due(bench: Bench) -> None:
    harbor, worker = program(bench)
    await worker.arun(until_empty=True)
    bench.clock.advance(40)
    await harbor.worker(heart="loop").arun(until_empty=True)
    (info,) = [each async for each in harbor.jobs()]
    assert info.state is State.DONE
    assert (await harbor.schedules.aget("ping")).missed == 1


def test_schedules_is_a_flag():
    wrong: Any = "no"
    with pytest.raises(TypeError, match="schedules: expected True or False, got str"):
        Worker("memory://", schedules=wrong)


@pytest.mark.parametrize("early", [0.01, 0.3, 0.99])
async def test_slots_a_second_apart_are_served_in_time_whenever_the_worker_began(early: float):
    driver = Counting("memory://")
    bench = Bench(driver)
    harbor = Harbor(driver, clock=bench.clock)

    @harbor.task(name="ping")
    async def ping() -> None: ...

    await harbor.schedules.aadd("ping", ping.s(), every=1, overlap="allow")
    bench.clock.advance(1 - early)
    worker = bench.worker(queues=["default"])
    async with bench.running(worker):
        await settled(bench.clock)
        await advance(bench.clock, 10, step=0.01)
    assert [event.late for event in bench.of(ScheduleFired)] == [0] * len(bench.of(ScheduleFired))
    assert len(bench.of(ScheduleFired)) >= 9
    assert len(driver.looks) <= 12
