"""What the operator sees when a worker cannot do its work: an event, a metric, the health answer, and `explain`.

Each is looked at together with the fault itself: a slot that is lost in silence is worse than one that is lost.
"""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from taskharbor import JobContext
from taskharbor.events import (
    Event,
    HandlerBlocked,
    HandlerFreed,
    HandlerStuck,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    WorkerStuck,
)
from taskharbor.observe.prometheus import PrometheusObserver
from taskharbor.store.diagnose import reasons
from taskharbor.store.situation import read_situation
from taskharbor.worker.heart import BLOCKED_AFTER_S
from taskharbor.worker.interrupts import CANCEL_GRACE
from tests.worker.workbench import Bench, bench_test, job

TIMEOUT = timedelta(seconds=2)


class Desk:
    """What an operator has: the metrics of a worker, and the commands."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._registry = CollectorRegistry()
        self.observer = PrometheusObserver(registry=self._registry)
        told, bench.events = bench.events, []
        assert not told

    def metric(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(name, labels) or 0.0

    async def explained(self, id: str) -> list[str]:
        situation = await read_situation(self._bench.driver, id, self._bench.clock.now())
        return [reason.code for reason in reasons(situation)]


def worker_at(bench: Bench, desk: Desk, **options: Any) -> Any:
    worker = bench.worker(**options)
    worker._observers.add(desk.observer)
    return worker


async def passes(bench: Bench, seconds: float) -> None:
    """Let time pass in steps, once a task sleeps on the clock, so that each step can take effect."""
    for _ in range(int(seconds)):
        for _ in range(10):
            await asyncio.sleep(0)
        bench.clock.advance(1)
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.parametrize("colour", ["thread", "coroutine"])
@bench_test
async def test_stuck_slots_are_reported_everywhere(bench: Bench, colour: str) -> None:
    desk, release, let_go = Desk(bench), threading.Event(), asyncio.Event()
    worker = worker_at(bench, desk, concurrency=2)

    def thread() -> None:
        release.wait(60)

    async def coroutine() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    worker.register("t", thread if colour == "thread" else coroutine, timeout=TIMEOUT)
    await bench.enqueue(job("a", max_attempts=1), job("b", max_attempts=1))
    async with bench.running(worker):
        await bench.heard(JobStarted, 2)
        await bench.enqueue(job("waits"))
        assert worker.health().ok
        await passes(bench, TIMEOUT.total_seconds())
        assert not bench.of(HandlerStuck)  # it was cancelled a moment ago: many end now
        await passes(bench, 2 * CANCEL_GRACE)
        stuck = await bench.heard(HandlerStuck, 2)
        assert sorted((event.job.id, event.reason) for event in stuck) == [("a", "timeout"), ("b", "timeout")]
        assert [event.stuck for event in stuck] == [1, 2]
        assert [event.slots for event in bench.of(WorkerStuck)] == [2]
        health = worker.health()
        assert (health.ok, health.slots, health.stuck, health.running) == (False, 2, 2, 2)
        assert desk.metric("taskharbor_stuck_slots") == 2
        assert desk.metric("taskharbor_handlers_stuck_total", queue="default", type="t") == 2
        await passes(bench, 30)  # until the next beat tells the store
        assert (await desk.explained("waits"))[0] == "slots_stuck"
        release.set()
        let_go.set()
        await bench.heard(HandlerFreed, 2)
        await bench.heard(JobSucceeded)
        assert desk.metric("taskharbor_stuck_slots") == 0
        assert (worker.health().stuck, worker.health().ok) == (0, True)


@bench_test
async def test_a_handler_stuck_after_a_lost_lease_is_reported(bench: Bench) -> None:
    desk, release = Desk(bench), threading.Event()
    worker = worker_at(bench, desk, concurrency=2, lease=30)
    worker.register("t", lambda: release.wait(60) and None)
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        await bench.driver.delete(["j"])
        await passes(bench, 10)
        await bench.heard(LeaseLost)
        await passes(bench, CANCEL_GRACE + 1)
        [stuck] = await bench.heard(HandlerStuck)
        assert (stuck.reason, stuck.stuck) == ("lease lost", 1)
        assert not bench.of(WorkerStuck)
        release.set()
        await bench.heard(HandlerFreed)


@bench_test
async def test_a_handler_that_stops_in_time_is_not_reported_as_stuck(bench: Bench) -> None:
    desk = Desk(bench)
    worker = worker_at(bench, desk, concurrency=2)

    def polite(ctx: JobContext) -> None:
        ctx.cancelled.wait(60)

    worker.register("t", polite, timeout=TIMEOUT)
    await bench.enqueue(job("j", max_attempts=1))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        await passes(bench, TIMEOUT.total_seconds())
        await until(lambda: worker.health().running == 0)
        await passes(bench, 2 * CANCEL_GRACE)
    assert not bench.of(HandlerStuck)


@bench_test
async def test_handlers_left_behind_by_a_stop_are_reported_and_no_longer_counted(bench: Bench) -> None:
    desk, release = Desk(bench), threading.Event()
    worker = worker_at(bench, desk, concurrency=2, shutdown_timeout=0)
    worker.register("t", lambda: release.wait(60) and None)
    await bench.enqueue(job("j"))
    task = asyncio.create_task(worker.arun())
    await bench.heard(JobStarted)
    worker.stop()
    await task
    [stuck] = bench.of(HandlerStuck)
    assert stuck.reason == "shutdown"
    assert desk.metric("taskharbor_stuck_slots") == 0
    release.set()


@bench_test
async def test_a_blocked_loop_is_reported_everywhere(bench: Bench) -> None:
    """The worker is not ready while its loop stands still, although it is busy; seen from another thread."""
    desk, healths = Desk(bench), []
    named = threading.Event()
    worker = worker_at(bench, desk, concurrency=1, heart="thread")

    def watch(event: Event) -> None:
        if isinstance(event, HandlerBlocked):
            healths.append(worker.health())  # in the heart's thread, while the loop is blocked
            named.set()

    worker._observers.add(watch)

    async def blocking() -> None:
        named.wait(60)

    worker.register("t", blocking)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    [health] = healths
    assert (health.ok, health.busy) == (False, True)
    assert health.blocked_for >= BLOCKED_AFTER_S
    assert desk.metric("taskharbor_handlers_blocked_total", queue="default", type="t") == 1
    assert worker.health().blocked_for == 0
