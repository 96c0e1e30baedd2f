"""Upkeep: the worker says that it is alive, follows the store's clock, and prunes what has had its time."""

import asyncio
from datetime import datetime, timedelta

import pytest

from taskharbor.drivers import open_driver
from taskharbor.events import JobStarted, JobSucceeded
from taskharbor.testing import ManualClock
from taskharbor.worker.capacity import Capacity
from taskharbor.worker.losses import Losses
from taskharbor.worker.upkeep import BEAT_INTERVAL_S, CHECK_INTERVAL_S, PRUNE_BATCH_JOBS, ROUND_INTERVAL_S, Upkeep
from tests.worker.workbench import Bench, bench_test, job, parts_of, run


class Following(ManualClock):
    """A clock that follows, and says when it wants to."""

    followed = 0
    old = False

    def stale(self) -> bool:
        return self.old

    async def follow(self, server_time: object) -> None:
        self.followed += 1
        self.old = False


async def once_asleep(clock: ManualClock) -> None:
    """Until the upkeep has done its round and sleeps."""
    while clock.sleepers != 1:
        await asyncio.sleep(0)


def test_upkeep_follows_the_stores_clock_each_round_and_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("taskharbor.worker.upkeep.random.random", lambda: 1.0)  # the first round: after a minute
    clock = Following()

    async def main() -> None:
        parts = parts_of(open_driver("memory://"), clock)
        upkeep = Upkeep(parts, Capacity(parts), Losses(parts))
        upkeep.start()
        await once_asleep(clock)
        assert clock.followed == 0
        clock.old = True  # the machine was asleep
        clock.advance(BEAT_INTERVAL_S)
        await once_asleep(clock)
        assert clock.followed == 1
        clock.advance(BEAT_INTERVAL_S)
        await once_asleep(clock)
        assert clock.followed == 1
        clock.advance(ROUND_INTERVAL_S)
        await once_asleep(clock)
        assert clock.followed == 2
        await upkeep.stop()
        assert parts.outage.seconds == 0.0

    run(main())


@bench_test
async def test_upkeep_sends_heartbeats_and_prunes(bench: Bench) -> None:
    worker = await bench.ran(lambda: None, job("old"), name="w")
    bench.clock.advance(bench.driver.retention + timedelta(seconds=1))
    async with bench.running(worker):
        while not await bench.driver.workers(bench.clock.now()):
            await asyncio.sleep(0)
        while (await bench.driver.counts(bench.clock.now())).get("default"):
            if bench.clock.sleepers:
                bench.clock.advance(BEAT_INTERVAL_S)
            await asyncio.sleep(0)


def test_a_long_prune_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker that prunes for a minute would be missing in the list of workers."""
    monkeypatch.setattr("taskharbor.worker.upkeep.random.random", lambda: 0.0)
    clock = ManualClock()

    async def main() -> None:
        driver = open_driver("memory://")
        ages, batches = list[timedelta](), iter([PRUNE_BATCH_JOBS] * 4 + [0])

        async def prune(before: datetime, limit: int) -> int:
            ages.append(clock.now() - (await driver.workers(clock.now()))[0].seen_at)
            clock.advance(BEAT_INTERVAL_S)
            return next(batches)

        monkeypatch.setattr(driver, "prune", prune)
        parts = parts_of(driver, clock)
        await driver.open()
        upkeep = Upkeep(parts, Capacity(parts), Losses(parts))
        upkeep.start()
        await once_asleep(clock)
        await upkeep.stop()
        assert ages == [timedelta()] * 5

    run(main())


@bench_test
async def test_a_worker_that_stops_leaves_the_list_at_once(bench: Bench) -> None:
    worker = bench.worker()
    task = asyncio.create_task(worker.arun())
    while not await bench.driver.workers(bench.clock.now()):
        await asyncio.sleep(0)
    worker.stop()
    await task
    assert await bench.driver.workers(bench.clock.now()) == []


@bench_test
async def test_changed_slot_figures_are_sent_soon(bench: Bench) -> None:
    """Not a beat later, and yet not with every job: it looks at its figures every few seconds."""
    go = asyncio.Event()
    worker = bench.worker(concurrency=4, lease=3600)
    worker.register("t", go.wait)

    async def said(running: int) -> None:
        while [info.running for info in await bench.driver.workers(bench.clock.now())] != [running]:
            await asyncio.sleep(0)

    async with bench.running(worker):
        await said(0)
        await bench.enqueue(job("a"), job("b"))
        await bench.heard(JobStarted, 2)
        while bench.clock.sleepers < 2:  # the heart's and the upkeep's
            await asyncio.sleep(0)
        bench.clock.advance(CHECK_INTERVAL_S)
        await said(2)
        go.set()
        await bench.heard(JobSucceeded, 2)
        while bench.clock.sleepers < 2:
            await asyncio.sleep(0)
        bench.clock.advance(CHECK_INTERVAL_S)
        await said(0)
