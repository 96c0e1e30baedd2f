"""How handlers run: threads and the loop, contexts, middleware, timeouts, slots."""

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import JobContext, Worker
from taskharbor.drivers import LeaseExpired
from taskharbor.events import (
    Event,
    JobFailed,
    JobProgress,
    JobReserved,
    JobRetried,
    JobStarted,
    JobSucceeded,
    LeaseLost,
)
from taskharbor.policy.retry import Fixed
from tests.worker.workbench import Bench, bench_test, job


@bench_test
async def test_the_task_of_a_job_is_named_after_it(bench: Bench) -> None:
    names: list[str] = []

    async def handler() -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())

    await bench.ran(handler, job("one"), job("two"))
    assert names == ["one", "two"]


@bench_test
async def test_middleware_wraps_in_order_and_sees_the_result(bench: Bench) -> None:
    trail: list[Any] = []

    def named(name: str) -> Any:
        async def middleware(ctx: JobContext, call_next: Any) -> Any:
            trail.append(f"{name} in {ctx.job.id}")
            result = await call_next(ctx)
            trail.append(f"{name} out {result}")
            return result

        return middleware

    worker = bench.worker(middleware=[named("outer"), named("inner")])

    async def coroutine() -> None: ...

    worker.register("t", lambda: 42)
    worker.register("c", coroutine)
    for each in (job("j"), job("k", "c")):
        await bench.enqueue(each)
        await worker.arun(until_empty=True)
    assert trail[:4] == ["outer in j", "inner in j", "inner out 42", "outer out 42"]
    assert trail[4:] == ["outer in k", "inner in k", "inner out None", "outer out None"]


@bench_test
async def test_middleware_may_change_the_result_or_fail_the_job(bench: Bench) -> None:
    async def double(ctx: JobContext, call_next: Any) -> Any:
        return 2 * await call_next(ctx)

    async def refuse(ctx: JobContext, call_next: Any) -> Any:
        if ctx.job.id == "bad":
            raise PermissionError("not today")
        return await call_next(ctx)

    await bench.ran(lambda: 21, job("good"), job("bad", max_attempts=1), middleware=[refuse, double])
    assert (await bench.info("good")).job.result == b"42"
    assert (await bench.info("bad")).job.last_error.startswith("PermissionError: not today")


@bench_test
async def test_an_observer_that_raises_breaks_nothing(bench: Bench) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("observer")

    bench._loop = asyncio.get_running_loop()
    from taskharbor.worker import Worker

    worker = Worker(bench.driver, clock=bench.clock, heart="loop", observers=[broken, bench])
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"
    assert bench.of(JobSucceeded)


@bench_test
async def test_the_context_describes_the_job(bench: Bench) -> None:
    seen: list[Any] = []
    worker = bench.worker()

    async def handler(ctx: JobContext) -> None:
        ctx.progress(1, 4, "first chunk")
        seen.extend([ctx.job.id, ctx.job.group, ctx.job.metadata, ctx.fence, ctx.deadline, bool(ctx.cancelled)])
        with pytest.raises(RuntimeError, match="SQL"):
            ctx.transaction()

    worker.register("t", handler, timeout=30)
    await bench.enqueue(job("j", group="g", metadata={"tenant": "acme"}))
    await worker.arun(until_empty=True)
    assert seen == ["j", "g", {"tenant": "acme"}, 1, bench.clock.now() + timedelta(seconds=30), False]
    [progress] = bench.of(JobProgress)
    assert (progress.done, progress.total, progress.note) == (1, 4, "first chunk")


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="clean")


@bench_test
async def test_context_variables_do_not_leak_from_job_to_job(bench: Bench) -> None:
    seen: list[str] = []

    async def coroutine() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("dirty")

    def function() -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set("dirty")

    worker = bench.worker(concurrency=1)
    worker.register("c", coroutine)
    worker.register("f", function)
    await bench.enqueue(job("a", "c"), job("b", "c"), job("c", "f"), job("d", "f"))
    await worker.arun(until_empty=True)
    assert seen == ["clean"] * 4


@bench_test
async def test_plain_functions_run_in_threads_and_coroutines_on_the_loop(bench: Bench) -> None:
    threads: dict[str, str] = {}

    async def coroutine() -> None:
        threads["coroutine"] = threading.current_thread().name

    def function() -> None:
        threads["function"] = threading.current_thread().name

    worker = bench.worker()
    worker.register("c", coroutine)
    worker.register("f", function)
    await bench.enqueue(job("a", "c"), job("b", "f"))
    await worker.arun(until_empty=True)
    assert threads["coroutine"] == threading.current_thread().name
    assert threads["function"].startswith("taskharbor-job")


@bench_test
async def test_a_plain_function_past_its_timeout_is_settled_and_keeps_its_slot(bench: Bench) -> None:
    release, told = threading.Event(), threading.Event()
    worker = bench.worker(concurrency=1, retry=Fixed(3600))

    def slow(ctx: JobContext) -> str:
        assert ctx.cancelled.wait(20)
        assert ctx.cancelled.reason == "timeout"
        told.set()
        assert release.wait(20)
        return "too late"

    worker.register("slow", slow)
    worker.register("quick", lambda: None)
    await bench.enqueue(job("slow", "slow", timeout=timedelta(seconds=5)))
    async with bench.running(worker) as task:
        await bench.heard(JobStarted)
        bench.clock.advance(5)
        await bench.heard(JobRetried)
        assert await asyncio.to_thread(told.wait, 20)
        await bench.enqueue(job("quick", "quick"))
        assert worker.health().running == 1
        assert await bench.state("quick") == "ready"  # its only slot is still taken
        release.set()
        await bench.heard(JobSucceeded)
        worker.stop()
        await task
    info = await bench.info("slow")
    assert (info.state, info.job.attempts, info.job.result) == ("scheduled", 1, None)
    assert await bench.state("quick") == "done"


@bench_test
async def test_a_timeout_begins_with_the_handlers_first_step(bench: Bench) -> None:
    """A neighbour keeps the loop for longer than the timeout, between the job's launch and its first step."""
    worker = bench.worker(lease=300)

    async def blocks() -> None:
        bench.clock.advance(60)

    async def waits(ctx: JobContext) -> None:
        assert ctx.deadline == bench.clock.now() + timedelta(seconds=5)
        for _ in range(20):
            await asyncio.sleep(0)

    worker.register("blocks", blocks)
    worker.register("t", waits)
    await bench.enqueue(job("a", "blocks"), job("b", timeout=timedelta(seconds=5), max_attempts=1))
    await worker.arun(until_empty=True)
    assert (await bench.state("a"), await bench.state("b")) == ("done", "done")


@bench_test
async def test_a_coroutine_that_returns_nothing_at_its_timeout_has_timed_out(bench: Bench) -> None:
    async def forgiving() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with bench.serving(forgiving, job("j", timeout=timedelta(seconds=5)), retry=Fixed(3600)):
        await bench.heard(JobStarted)
        bench.clock.advance(5)
        await bench.heard(JobRetried)
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.last_error) == ("scheduled", 1, "TimeoutError: timed out after 5 s")


@bench_test
async def test_a_coroutine_that_will_not_be_cancelled_is_decided_without_it(bench: Bench) -> None:
    go = asyncio.Event()
    worker = bench.worker(retry=Fixed(3600))

    async def stubborn() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    worker.register("t", stubborn)
    await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
    async with bench.running(worker) as task:
        await bench.heard(JobStarted)
        bench.clock.advance(5)
        for _ in range(10):
            await asyncio.sleep(0)
        assert await bench.state("j") == "inflight"
        bench.clock.advance(5)
        await bench.heard(JobRetried)
        go.set()
        worker.stop()
        await task
    assert (await bench.info("j")).job.last_error.startswith("TimeoutError")


@bench_test
async def test_until_empty_includes_what_its_jobs_enqueue_retry_and_release(bench: Bench) -> None:
    ran: list[str] = []
    worker = bench.worker(retry=Fixed(0))

    async def parent() -> None:
        ran.append("parent")
        await bench.enqueue(job("child"))

    async def flaky(ctx: JobContext) -> None:
        ran.append("flaky")
        if not ctx.job.attempts:
            raise ValueError

    worker.register("parent", parent)
    worker.register("flaky", flaky)
    worker.register("t", lambda: ran.append("t"))
    await bench.enqueue(job("p", "parent"), job("f", "flaky"), job("after", depends_on=("f", "p")))
    await worker.arun(until_empty=True)
    assert sorted(ran) == ["flaky", "flaky", "parent", "t", "t"]
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 4}}


@pytest.mark.parametrize("how", ["lost", "timeout", "shutdown"])
@bench_test
async def test_a_job_interrupted_before_its_first_step_leaves_its_slot(bench: Bench, how: str) -> None:
    ran: list[str] = []
    worker = bench.worker(concurrency=1, retry=Fixed(3600))

    async def handler() -> None:
        ran.append("ran")

    worker.register("t", handler)
    await worker.arun(until_empty=True)  # so that there are services to look into
    assert worker._services is not None
    await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
    reserved = await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=30), 1)
    executor = worker._services.executor
    executor._stopping = False
    executor.start(reserved)
    [run] = executor.capacity.running
    if how == "lost":
        executor.interrupts.lose(run, LeaseExpired("gone"))
    elif how == "timeout":
        executor.interrupts._on_due(run, 5.0)
    else:
        run.stop_reason = "shutdown"
        run.interrupt()
    assert run.task is not None
    await asyncio.wait((run.task,))
    assert not executor.capacity.running
    assert ran == (["ran"] if how == "timeout" else [])  # whose time begins only now
    assert len(worker._services._outcomes.waiting) == (0 if how == "lost" else 1)


@bench_test
async def test_middleware_sees_what_a_plain_function_raised(bench: Bench) -> None:
    seen: list[str] = []

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        try:
            return await call_next(ctx)
        except KeyError as error:
            seen.append(type(error).__name__)
            return "mended"

    def handler() -> None:
        raise KeyError("k")

    await bench.ran(handler, job("j"), middleware=[middleware])
    assert seen == ["KeyError"]
    assert (await bench.info("j")).job.result == b'"mended"'


@bench_test
async def test_a_step_of_the_clock_neither_ends_nor_prolongs_a_job(bench: Bench) -> None:
    go = asyncio.Event()
    worker = bench.worker(lease=7200, retry=Fixed(3600))

    async def handler() -> None:
        await go.wait()

    worker.register("t", handler, timeout=60)
    await bench.enqueue(job("a"), job("b"))
    async with bench.running(worker):
        await bench.heard(JobStarted, 2)
        bench.clock.step(timedelta(hours=1))
        bench.clock.advance(59)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not bench.of(JobFailed)
        bench.clock.step(timedelta(minutes=-30))
        bench.clock.advance(1)
        await bench.heard(JobRetried, 2)


@bench_test
async def test_a_job_whose_lease_ended_before_its_start_is_left_to_others(bench: Bench) -> None:
    """The process stood still between the reserve and the first step of the handler, as after a SIGSTOP."""
    started: list[int] = []
    lost: list[LeaseLost] = []
    jumps = [60]

    async def handler(ctx: JobContext) -> None:
        started.append(ctx.fence)

    def stand_still(event: Event) -> None:
        if isinstance(event, JobReserved) and jumps:  # the worker has taken the job, and not called its handler
            bench.clock.advance(jumps.pop())
        elif isinstance(event, LeaseLost):
            lost.append(event)

    worker = Worker(bench.driver, clock=bench.clock, observers=[stand_still], heart="loop", lease=30)
    worker.register("t", handler)
    await bench.enqueue(job("one"))
    await worker.arun(until_empty=True)
    assert started == [2]
    assert ["before its handler was called" in str(each.error) for each in lost] == [True]
