"""Middleware that hangs, around a handler of any colour: at the timeout it is cancelled and its slot is free."""

import asyncio
import threading
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.events import JobGivenBack, JobRetried, JobStarted, JobSucceeded, LeaseLost
from taskharbor.policy.retry import Fixed
from tests.worker import process_handlers
from tests.worker.workbench import Bench, bench_test, job

COLOURS = ["coroutine", "function"]
WHYS = ["timeout", "lost", "shutdown"]
WHERE = ["before", "after"]


async def _coroutine() -> str:
    return "returned"


def _register(worker: Any, colour: str) -> None:
    handlers = {"coroutine": _coroutine, "function": lambda: "returned", "process": process_handlers.where}
    worker.register("t", handlers[colour], process=colour == "process")


@pytest.mark.parametrize(("why", "colour", "where"), [*product(WHYS, COLOURS, WHERE), ("timeout", "process", "after")])
@bench_test
async def test_hanging_middleware_is_cancelled(bench: Bench, why: str, colour: str, where: str) -> None:
    hangs, ended = asyncio.Event(), asyncio.Event()

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        if ctx.job.type != "t":
            return await call_next(ctx)
        try:
            if where == "after":
                await call_next(ctx)
            hangs.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    worker = bench.worker(concurrency=1, middleware=[middleware], retry=Fixed(3600), lease=30)
    _register(worker, colour)
    worker.register("quick", lambda: None)
    timeout = timedelta(seconds=5) if why == "timeout" else None
    await bench.enqueue(job("j", timeout=timeout))
    async with bench.running(worker) as running:
        await hangs.wait()
        if why == "timeout":
            bench.clock.advance(5)
            await bench.heard(JobRetried)
        elif why == "lost":
            await bench.driver.delete(["j"])
            bench.clock.advance(10)
            await bench.heard(LeaseLost)
        else:
            worker.hurry()
            await running
            assert [event.reason for event in bench.of(JobGivenBack)] == ["shutdown"]
        await ended.wait()
        if why != "shutdown":
            await bench.enqueue(job("after", "quick"))
            await bench.heard(JobSucceeded)  # in the only slot
    if why == "timeout":
        info = await bench.info("j")
        assert info.job.last_error == "TimeoutError: timed out after 5 s"


@bench_test
async def test_a_function_that_ends_after_its_timeout_does_not_let_its_middleware_go_on(bench: Bench) -> None:
    release, seen = threading.Event(), list[str]()

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        try:
            await call_next(ctx)
            seen.append("went on")
        except asyncio.CancelledError:
            seen.append("was cancelled")
            raise

    def slow() -> None:
        assert release.wait(30)

    async with bench.serving(
        slow, job("j", timeout=timedelta(seconds=5)), concurrency=1, middleware=[middleware], retry=Fixed(3600)
    ) as worker:
        await bench.heard(JobStarted)
        while not any(run.in_thread for run in worker._services.capacity.running):  # type: ignore[union-attr]  # never None here
            await asyncio.sleep(0)
        bench.clock.advance(5)
        await bench.heard(JobRetried)  # settled at once, while the thread goes on in its slot
        assert worker.health().running == 1
        release.set()
        while worker.health().running:
            await asyncio.sleep(0)
    assert seen == ["was cancelled"]


@pytest.mark.parametrize("colour", ["coroutine", "function"])
@bench_test
async def test_middleware_that_ignores_its_cancel_does_not_get_the_handler_called(bench: Bench, colour: str) -> None:
    hangs, called = asyncio.Event(), list[str]()

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        try:
            hangs.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await call_next(ctx)

    async def coroutine() -> None:
        called.append("coroutine")

    async with bench.serving(
        coroutine if colour == "coroutine" else lambda: called.append("function"),
        job("j", timeout=timedelta(seconds=5)),
        middleware=[middleware],
        retry=Fixed(3600),
    ):
        await hangs.wait()
        bench.clock.advance(5)
        await bench.heard(JobRetried)
    assert called == []
