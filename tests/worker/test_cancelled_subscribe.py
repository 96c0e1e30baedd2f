"""What a handler gives to `ctx.cancelled.subscribe` is called by the worker: nothing that it raises ends a service."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.events import JobCancelled, JobRetried, JobStarted, JobSucceeded, LeaseLost, WorkerStopped
from taskharbor.policy.retry import Fixed
from tests.worker.workbench import Bench, bench_test, job

ERRORS = [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError]


def hearts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "taskharbor-heart"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("colour", ["coroutine", "function"])
@pytest.mark.parametrize("why", ["timeout", "cancelled", "lease lost", "shutdown"])
@bench_test
async def test_a_callback_that_raises_ends_neither_worker_nor_job(
    bench: Bench, why: str, colour: str, error: type[BaseException]
) -> None:
    worker = bench.worker(retry=Fixed(3600), lease=30, heart="loop")

    def broken() -> None:
        raise error

    async def coroutine(ctx: JobContext) -> None:
        ctx.cancelled.subscribe(broken)
        assert await ctx.cancelled.hit() == why

    def function(ctx: JobContext) -> None:
        ctx.cancelled.subscribe(broken)
        assert ctx.cancelled.wait(30)

    worker.register("t", coroutine if colour == "coroutine" else function)
    worker.register("quick", lambda: "fine")
    await bench.enqueue(job("j", timeout=timedelta(seconds=5) if why == "timeout" else None))
    async with bench.running(worker) as running:
        await bench.heard(JobStarted)
        while (await _subscribed(worker)) == 0:
            await asyncio.sleep(0)
        if why == "timeout":
            bench.clock.advance(5)
            await bench.heard(JobRetried)
        elif why == "cancelled":
            await bench.driver.cancel(["j"], bench.clock.now())
            bench.clock.advance(10)
            await bench.heard(JobCancelled)
        elif why == "lease lost":
            await bench.driver.delete(["j"])
            bench.clock.advance(10)
            await bench.heard(LeaseLost)
        if why != "shutdown":
            await bench.enqueue(job("after", "quick"))
            await bench.heard(JobSucceeded)
        worker.stop()
        await running
    assert type(bench.events[-1]) is WorkerStopped
    if why in ("timeout", "shutdown"):
        assert await bench.state("j") == {"timeout": "scheduled", "shutdown": "done"}[why]


async def _subscribed(worker: Any) -> int:
    return sum(
        len(run.context._cancelled._callbacks)
        for run in worker._services.capacity.running
        if run.context is not None and run.context._cancelled is not None
    )


@bench_test
async def test_the_heart_stops_with_the_worker_whatever_another_service_raises(bench: Bench) -> None:
    worker = bench.worker(heart="thread")
    running = asyncio.create_task(worker.arun())
    await bench.heard_any()
    services = worker._services
    assert services is not None
    stopped: list[str] = []
    for name in ("fetcher", "executor", "_settler", "_upkeep"):
        _break(getattr(services, name), name, stopped)
    worker.stop()
    with pytest.raises(ZeroDivisionError):
        await running
    assert stopped == ["executor", "fetcher", "_settler", "_upkeep"]
    assert not hearts()


def _break(service: Any, name: str, stopped: list[str]) -> None:
    way = "stop" if name == "executor" else "end"
    stop = getattr(service, way)

    async def broken(*args: Any) -> None:
        stopped.append(name)
        await stop(*args)
        raise ZeroDivisionError

    setattr(service, way, broken)
