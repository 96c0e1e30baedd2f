"""How handlers end, and what becomes of their jobs."""

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Cancel, JobContext, RetryLater, Snooze
from taskharbor.drivers import LeaseExpired
from taskharbor.events import (
    JobCancelled,
    JobDeadLettered,
    JobFailed,
    JobProgress,
    JobReserved,
    JobRetried,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    JobUnknown,
    PolicyFailed,
)
from taskharbor.policy.retry import Fixed
from tests.worker.bench import Bench, bench_test, job


@bench_test
async def test_events_of_a_success_come_in_order_with_the_job(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", lambda: {"a": 1})
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    kinds = [type(event) for event in bench.events if getattr(event, "job", None) is not None]
    assert kinds == [JobReserved, JobStarted, JobSucceeded]
    assert (await bench.info("j")).job.result == b'{"a":1}'


@bench_test
async def test_snooze_spends_no_attempt(bench: Bench) -> None:
    worker = bench.worker()

    async def handler(ctx: JobContext) -> None:
        if ctx.job.deliveries == 1:
            raise Snooze(90)

    worker.register("t", handler)
    await bench.enqueue(job("j", max_attempts=1))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.last_error) == ("scheduled", 0, "")
    assert info.job.run_at == bench.clock.now() + timedelta(seconds=90)
    assert not bench.of(JobFailed)
    assert len(bench.of(JobSnoozed)) == 1
    bench.clock.advance(90)
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"


@bench_test
async def test_retry_later_spends_an_attempt_and_sets_its_own_delay(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(5000))

    async def handler() -> None:
        raise RetryLater(timedelta(seconds=7))

    worker.register("t", handler)
    await bench.enqueue(job("j", max_attempts=2))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.job.attempts, info.job.run_at) == (1, bench.clock.now() + timedelta(seconds=7))
    bench.clock.advance(7)
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "dlq"


@bench_test
async def test_cancel_by_the_handler(bench: Bench) -> None:
    worker = bench.worker()

    def handler() -> None:
        raise Cancel("the order was withdrawn")

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.reason, info.job.attempts) == ("cancelled", "the order was withdrawn", 0)
    assert [event.reason for event in bench.of(JobCancelled)] == ["the order was withdrawn"]


@bench_test
async def test_an_unrecoverable_type_of_the_handler(bench: Bench) -> None:
    worker = bench.worker()

    def handler() -> None:
        raise KeyError("k")

    worker.register("t", handler, unrecoverable=[LookupError])
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert info.job.reason == "unrecoverable KeyError: 'k'"


@pytest.mark.parametrize(
    ("value", "word"),
    [("x" * 70_000, "over the limit of 65536"), (float("nan"), "nan"), (object(), "object"), ({"a": {2}}, None)],
)
def test_a_result_that_cannot_be_stored_is_final(value: Any, word: str | None) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))
        worker.register("t", lambda: value)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        if word is None:
            assert info.state == "done"
            return
        assert (info.state, info.job.attempts) == ("dlq", 1)
        assert word in info.job.reason

    scenario()


@pytest.mark.parametrize(
    "payload", [b'{"to": 5}', b"{}", b"not json", b'{"to": "a", "cc": "b"}', b"\xff", b"[" * 5000, b""]
)
def test_a_payload_that_does_not_fit_is_final_and_never_quoted(payload: bytes) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))

        def handler(to: str) -> None: ...

        worker.register("t", handler)
        await bench.enqueue(job("j", payload=payload))
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (info.state, info.job.attempts) == ("dlq", 1)
        assert len(bench.of(JobDeadLettered)) == 1

    scenario()


@bench_test
async def test_a_payload_that_is_no_object_is_the_one_argument(bench: Bench) -> None:
    seen: list[Any] = []
    worker = bench.worker()
    worker.register("t", lambda value: seen.append(value))
    await bench.enqueue(job("a", payload=b"[1,2]"), job("b", payload=b'"text"'))
    await worker.arun(until_empty=True)
    assert seen == [[1, 2], "text"]


@bench_test
async def test_an_unknown_type_is_given_back_with_a_delay_and_never_dead(bench: Bench) -> None:
    worker = bench.worker()
    await bench.enqueue(job("j", "nobody knows", max_attempts=1))
    for _ in range(5):
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (info.state, info.job.attempts) == ("scheduled", 0)
        assert info.job.run_at is not None
        assert info.job.run_at > bench.clock.now()
        bench.clock.advance(60)
    assert len(bench.of(JobUnknown)) == 5


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
    worker.register("t", lambda: 42)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert trail == ["outer in j", "inner in j", "inner out 42", "outer out 42"]


@bench_test
async def test_middleware_may_change_the_result_or_fail_the_job(bench: Bench) -> None:
    async def double(ctx: JobContext, call_next: Any) -> Any:
        return 2 * await call_next(ctx)

    async def refuse(ctx: JobContext, call_next: Any) -> Any:
        if ctx.job.id == "bad":
            raise PermissionError("not today")
        return await call_next(ctx)

    worker = bench.worker(middleware=[refuse, double])
    worker.register("t", lambda: 21)
    await bench.enqueue(job("good"), job("bad", max_attempts=1))
    await worker.arun(until_empty=True)
    assert (await bench.info("good")).job.result == b"42"
    assert (await bench.info("bad")).job.last_error.startswith("PermissionError: not today")


@bench_test
async def test_an_observer_that_raises_breaks_nothing(bench: Bench) -> None:
    def broken(event: object) -> None:
        raise RuntimeError("observer")

    bench._loop = asyncio.get_running_loop()
    from taskharbor.worker import Worker

    worker = Worker(bench.driver, clock=bench.clock, heart="loop", observers=[broken, bench.observe])
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"
    assert bench.of(JobSucceeded)


def _policy_raises(attempts: int, error: BaseException) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize("policy", [_policy_raises, lambda a, e: float("nan"), lambda a, e: -1, lambda a, e: "soon"])
def test_a_policy_that_fails_counts_as_a_minute_and_is_reported(policy: Any) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=policy)

        def handler() -> None:
            raise ValueError

        worker.register("t", handler)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (info.job.attempts, info.job.run_at) == (1, bench.clock.now() + timedelta(seconds=60))
        assert len(bench.of(PolicyFailed)) == 1

    scenario()


@bench_test
async def test_a_policy_that_answers_none_ends_the_job(bench: Bench) -> None:
    worker = bench.worker(retry=lambda attempts, error: None if isinstance(error, KeyError) else 0)

    def handler(ctx: JobContext) -> None:
        raise KeyError if ctx.job.attempts else ValueError

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("dlq", 2)
    assert len(bench.of(JobRetried)) == 1


@bench_test
async def test_the_context_tells_about_the_job(bench: Bench) -> None:
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
        await asyncio.to_thread(told.wait, 20)
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


class Expansion:
    """Stands for a workflow: all that the worker knows of one is its `compile`."""

    def __init__(self, *jobs: Any, handover: str) -> None:
        self.jobs, self.handover = jobs, handover

    def compile(self, parent: Any, now: Any) -> Any:
        from taskharbor.tasks.workflow import Spawned

        return Spawned(self.jobs, self.handover)


@bench_test
async def test_a_returned_workflow_takes_the_jobs_place(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("split", lambda: Expansion(job("s1"), job("s2", depends_on=("s1",)), handover="s2"))
    worker.register("t", lambda: "result")
    await bench.enqueue(job("p", "split"), job("next", depends_on=("p",)))
    await worker.arun(until_empty=True)
    assert (await bench.info("p")).job.handed_to == "s2"
    assert (await bench.info("next")).job.depends_on == ("s2",)
    assert await bench.state("next") == "done"
    assert await bench.driver.results(["p"]) == {"p": b'"result"'}


@bench_test
async def test_a_workflow_that_cannot_be_stored_fails_the_job(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("split", lambda: Expansion(job("s1", depends_on=("nobody",)), handover="s1"))
    await bench.enqueue(job("p", "split"))
    await worker.arun(until_empty=True)
    info = await bench.info("p")
    assert (info.state, info.job.attempts) == ("dlq", 1)
    assert "its workflow cannot be stored" in info.job.reason


@pytest.mark.parametrize("how", ["lost", "timeout", "shutdown"])
def test_a_job_interrupted_before_its_first_step_leaves_its_slot(how: str) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        ran: list[str] = []
        worker = bench.worker(concurrency=1, retry=Fixed(3600))

        async def handler() -> None:
            ran.append("ran")

        worker.register("t", handler)
        await worker.arun(until_empty=True)  # so that there is a crew to look into
        assert worker._crew is not None
        await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
        reserved = await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=30), 1)
        submitted: list[Any] = []
        executor = worker._crew.executor
        executor._stopping = False
        executor.submit = lambda run, outcome: submitted.append(outcome)
        executor.start(reserved)
        [run] = executor.running
        if how == "lost":
            executor.lose(run, LeaseExpired("gone"))
        elif how == "timeout":
            executor._on_due(run, 5.0)
        else:
            run.stop_reason = "shutdown"
            run.interrupt()
        assert run.task is not None
        await asyncio.wait((run.task,))
        assert not executor.running
        assert ran == []
        assert len(submitted) == (0 if how == "lost" else 1)

    scenario()


@bench_test
async def test_middleware_sees_what_a_plain_function_raised(bench: Bench) -> None:
    seen: list[str] = []

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        try:
            return await call_next(ctx)
        except KeyError as error:
            seen.append(type(error).__name__)
            return "mended"

    worker = bench.worker(middleware=[middleware])

    def handler() -> None:
        raise KeyError("k")

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
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
