"""Leases: renewed while a job runs, also when the loop is blocked; a lost one stops its job."""

import asyncio
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest

from taskharbor import JobContext
from taskharbor.drivers import LeaseMismatch
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import HandlerBlocked, JobCancelled, JobStarted, JobSucceeded, LeaseLost, OutcomeRefused
from taskharbor.testing import Faults
from taskharbor.worker import heart as heart_module
from taskharbor.worker.heart import LoopWatch
from tests.worker.workbench import PATIENCE, Bench, bench_test, job, parts_of, waits_for

LEASE = timedelta(seconds=30)


@bench_test
async def test_a_lost_lease_cancels_its_job_and_its_outcome_is_thrown_away(bench: Bench) -> None:
    stopped = asyncio.Event()

    async def handler(ctx: JobContext) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled.reason == "lease lost"
            stopped.set()
            return "thrown away"
        return ""

    async with bench.serving(handler, job("j"), lease=30, heartbeat=10) as worker:
        await bench.heard(JobStarted)
        await bench.driver.pause("default")  # so that this worker does not take it again itself
        await bench.driver.release(worker.name, bench.clock.now())
        await bench.driver.resume("default")
        [second] = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "other")
        bench.clock.advance(10)
        [lost] = await bench.heard(LeaseLost)
        await stopped.wait()
        assert isinstance(lost.error, LeaseMismatch)
        await bench.driver.ack(second.lease, bench.clock.now(), b'"second"')
    info = await bench.info("j")
    assert (info.job.result, info.job.deliveries) == (b'"second"', 2)
    assert not bench.of(JobSucceeded)
    assert not bench.of(OutcomeRefused)  # nobody even tried to settle it


@bench_test
async def test_a_running_job_that_is_cancelled_stops_at_the_next_heartbeat(bench: Bench) -> None:
    reasons: list[str | None] = []
    stopped = asyncio.Event()

    async def handler(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancelled.reason)
            stopped.set()

    async with bench.serving(handler, job("j"), lease=30, heartbeat=10):
        await bench.heard(JobStarted)
        assert await bench.driver.cancel(["j"], bench.clock.now()) == [None]
        bench.clock.advance(10)
        await bench.heard(JobCancelled)
        await stopped.wait()
    assert reasons == ["cancelled"]
    assert await bench.state("j") == "cancelled"


@bench_test
async def test_a_job_that_ends_after_it_was_cancelled_is_an_ordinary_end(bench: Bench) -> None:
    go = asyncio.Event()
    async with bench.serving(waits_for(go), job("j")):
        await bench.heard(JobStarted)
        assert await bench.driver.cancel(["j"], bench.clock.now()) == [None]
        go.set()
        [told] = await bench.heard(JobCancelled)
    assert (told.job.id, told.reason) == ("j", "cancelled while it ran")
    assert not bench.of(OutcomeRefused)


@bench_test
async def test_an_outcome_after_a_lost_lease_is_refused_and_reported(bench: Bench) -> None:
    go = asyncio.Event()
    worker = bench.worker()
    worker.register("t", waits_for(go))
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        assert await bench.driver.delete(["j"]) == [None]
        go.set()
        await bench.heard(OutcomeRefused)


@bench_test
async def test_a_failed_heartbeat_is_repeated_before_the_lease_ends(bench: Bench) -> None:
    faults, go = Faults(), asyncio.Event()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", waits_for(go))
    await bench.enqueue(job("j"))
    async with bench.running(worker) as task:
        await bench.heard(JobStarted)
        faults.fail("extend")
        bench.clock.advance(10)
        while faults.pending():
            await asyncio.sleep(0)
        bench.clock.advance(1)  # not a whole beat later
        await bench.extended("j", to=bench.clock.now() + LEASE)
        go.set()
        worker.stop()
        await task
    assert (await bench.info("j")).job.deliveries == 1


@bench_test
async def test_the_time_that_a_renewal_takes_is_part_of_the_interval(bench: Bench) -> None:
    go, extend = asyncio.Event(), MemoryDriver.extend

    async def slow_extend(driver: MemoryDriver, *args: Any) -> Any:
        results = await extend(driver, *args)
        bench.clock.advance(4)
        return results

    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", waits_for(go))
    await bench.enqueue(job("j"))
    with patch.object(MemoryDriver, "extend", slow_extend):
        async with bench.running(worker):
            await bench.heard(JobStarted)
            start = bench.clock.now()
            bench.clock.advance(10)
            await bench.extended("j", to=start + timedelta(seconds=10) + LEASE)
            bench.clock.advance(6)  # and 4 that the renewal took
            await bench.extended("j", to=start + timedelta(seconds=20) + LEASE)
            go.set()


@bench_test
async def test_leases_are_renewed_while_a_handler_blocks_the_loop_and_the_handler_is_named(bench: Bench) -> None:
    """The handler blocks the loop's thread until the heart, in its own thread, has renewed its lease and said who."""
    named = threading.Event()
    renewed = threading.Event()
    worker = bench.worker(lease=30, heartbeat=10, heart="thread")

    def observe(event: object) -> None:
        if isinstance(event, HandlerBlocked):
            named.set()

    worker._observers.add(observe)
    store = bench.driver.sibling()

    def watch_lease() -> None:
        async def look() -> None:
            while not renewed.is_set():
                await bench.heart_sleeps()  # else the lease might end before a heart that is late has renewed it
                bench.clock.advance(10)
                info = await store.inspect("j", bench.clock.now())
                if info.lease_expires_at and info.lease_expires_at > first_expiry + 3 * LEASE:
                    renewed.set()

        asyncio.run(look())

    first_expiry = bench.clock.now() + LEASE

    async def blocking() -> None:
        assert named.wait(25)
        watcher = threading.Thread(target=watch_lease)
        watcher.start()
        renewed.wait(25)
        watcher.join()

    worker.register("blocking", blocking)
    await bench.enqueue(job("j", "blocking"))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.deliveries) == ("done", 1)
    [event] = bench.of(HandlerBlocked)
    assert event.job is not None
    assert event.job.type == "blocking"
    handler_line, innermost = event.where.split(" → ")
    assert "test_heart.py" in handler_line
    assert "in blocking" in handler_line
    assert "threading.py" in innermost
    assert event.seconds >= heart_module.BLOCKED_AFTER_S


class _StandingLoop:
    """A worker's loop that does not turn before `sign` is called."""

    def __init__(self) -> None:
        self._asked: list[Callable[[], object]] = []
        self.time = asyncio.get_running_loop().time

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        self._asked.append(lambda: callback(*args))

    def sign(self) -> None:
        for answer in self._asked:
            answer()
        self._asked.clear()


@pytest.mark.parametrize("ends", [True, False])
def test_a_blockage_that_ends_when_it_is_noticed_is_not_reported(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the moment that the watch gave up waiting and its look the handler has ended: there is nobody to name."""
    for name in ("BLOCKED_AFTER_S", "CHECK_INTERVAL_S"):
        monkeypatch.setattr(heart_module, name, 0.05)
    monkeypatch.setattr(heart_module, "NO_HANDLER_S", PATIENCE if ends else 0.05)  # a sign that comes late counts too

    @bench_test
    async def scenario(bench: Bench) -> None:
        loop, looked = _StandingLoop(), asyncio.Event()
        watch = LoopWatch(parts_of(bench.driver, bench.clock, [bench]))
        bench._loop = asyncio.get_running_loop()
        watch._loop = loop  # type: ignore[assignment]  # replaced for the test

        def frames() -> dict[int, FrameType]:
            looked.set()
            if ends:
                loop.sign()
            return {}

        with monkeypatch.context() as patch:
            patch.setattr(sys, "_current_frames", frames)
            watching = asyncio.create_task(watch.run())
            await looked.wait()
            if ends:
                looked.clear()
                await looked.wait()  # the next pulse has been asked for, and was not answered in time either
            else:
                await bench.heard(HandlerBlocked)
                assert watch.blocked_for > 0
                loop.sign()
                while watch.blocked_for:
                    await asyncio.sleep(0)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert [event.job for event in bench.of(HandlerBlocked)] == ([] if ends else [None])

    scenario()
