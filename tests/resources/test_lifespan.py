"""The lifespan of a worker: entered before its first job, left after its last; what fails in it ends the worker."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import pytest

from taskharbor import Given, Harbor, LifespanFailed, Worker
from taskharbor.events import Event
from taskharbor.testing import ManualClock, drain
from tests.worker.workbench import Bench, bench_test, heard_test, job, run


class Life:
    """A lifespan that writes down what happens, and where a test may interfere."""

    def __init__(self) -> None:
        self.journal: list[str] = []
        self.entering: Callable[[], Any] = lambda: None
        self.leaving: Callable[[], Any] = lambda: None
        self.tasks: set[Any] = set()

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        self.journal.append("entering")
        self.tasks.add(asyncio.current_task())
        await _done(self.entering())
        self.journal.append("entered")
        try:
            yield "given"
        finally:
            self.tasks.add(asyncio.current_task())
            self.journal.append("leaving")
            await _done(self.leaving())
            self.journal.append("left")

    def observe(self, event: Event) -> None:
        if type(event).__name__ in {"WorkerStarted", "JobStarted", "JobSucceeded", "WorkerStopped"}:
            self.journal.append(type(event).__name__)


async def _done(result: Any) -> None:
    if asyncio.iscoroutine(result):
        await result


def worker_of(bench: Bench, life: Life, **options: Any) -> Worker:
    worker = bench.worker(lifespan=life.__call__, **options)
    worker._observers.add(life.observe)
    return worker


@bench_test
async def test_it_is_entered_before_the_first_job_and_left_after_the_last(bench: Bench) -> None:
    life = Life()
    worker = worker_of(bench, life, concurrency=1)

    @worker.handler("t")
    async def handler(given: str = Given()) -> str:
        life.journal.append(given)
        return given

    await bench.enqueue(job("a"), job("b"))
    await worker.arun(until_empty=True)
    one = ["JobStarted", "given", "JobSucceeded"]
    assert life.journal[:3] == ["entering", "entered", "WorkerStarted"]
    assert sorted(life.journal[3:9]) == sorted(one * 2)
    assert life.journal[9:] == ["WorkerStopped", "leaving", "left"]
    assert len(life.tasks) == 1, "task groups and cancel scopes must be left by the task that entered them"


@bench_test
async def test_each_run_of_a_worker_has_its_own(bench: Bench) -> None:
    life = Life()
    worker = worker_of(bench, life)
    await worker.arun(until_empty=True)
    await worker.arun(until_empty=True)
    assert [word for word in life.journal if not word.startswith("Worker")] == [
        "entering", "entered", "leaving", "left", "entering", "entered", "leaving", "left",
    ]  # fmt: skip


@bench_test
async def test_a_lifespan_that_fails_ends_the_worker_with_one_line(bench: Bench) -> None:
    life = Life()
    worker = worker_of(bench, life)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))

    def fail() -> None:
        raise ConnectionError("the pool is full")

    life.entering = fail
    with pytest.raises(LifespanFailed) as failed:
        await worker.arun(until_empty=True)
    text = str(failed.value)
    assert text.startswith("the lifespan Life.__call__ failed at test_lifespan.py:")
    assert text.endswith(": ConnectionError: the pool is full")
    assert "\n" not in text
    assert isinstance(failed.value.__cause__, ConnectionError)
    assert life.journal == ["entering"]
    assert await bench.state("j") == "ready"
    assert worker.health().state == "stopped"


@bench_test
async def test_an_exit_in_a_lifespan_is_a_failure_like_any_other(bench: Bench) -> None:
    life = Life()
    life.entering = lambda: exec("raise SystemExit(3)")
    with pytest.raises(LifespanFailed, match="SystemExit: 3"):
        await worker_of(bench, life).arun()


@pytest.mark.parametrize("when", ["entering", "running", "leaving"])
@heard_test
async def test_a_cancellation_inside_a_lifespan_is_a_failure_too(bench: Bench, when: str) -> None:
    """Something that it awaits was cancelled. The worker itself was not: it must not end as if all were well."""
    life = Life()
    started = asyncio.Event()

    async def cancelled() -> None:
        other = asyncio.create_task(asyncio.Event().wait())
        other.cancel()
        await other

    @asynccontextmanager
    async def ends_by_itself() -> AsyncIterator[None]:
        body = asyncio.current_task()
        assert body is not None

        async def end() -> None:
            await started.wait()
            body.cancel()

        ending = asyncio.create_task(end())
        try:
            yield
        except asyncio.CancelledError:
            body.uncancel()  # as a cancel scope does that was cancelled, and not its task
            raise
        finally:
            ending.cancel()

    if when != "running":
        setattr(life, when, cancelled)
    worker = bench.worker(lifespan=ends_by_itself if when == "running" else life.__call__)

    @worker.handler("t")
    async def handler() -> None:
        started.set()

    await bench.enqueue(job("j"))
    async with asyncio.timeout(30):
        with pytest.raises(LifespanFailed, match="CancelledError"):
            await worker.arun(until_empty=when != "running")


@bench_test
async def test_a_failure_on_the_way_out_is_raised_when_everything_else_is_done(bench: Bench) -> None:
    life = Life()

    def fail() -> None:
        raise ConnectionError("cannot be closed")

    life.leaving = fail
    worker = worker_of(bench, life)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    with pytest.raises(LifespanFailed, match=r"failed when it was left at test_lifespan.py:.*cannot be closed"):
        await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"
    assert worker.health().state == "stopped"


@bench_test
async def test_a_lifespan_that_ends_by_itself_stops_the_worker(bench: Bench) -> None:
    """As a task group does when one of its tasks fails: it cancels the body."""
    break_it = asyncio.Event()

    @asynccontextmanager
    async def breaks() -> AsyncIterator[str]:
        own = asyncio.current_task()
        assert own is not None

        async def watch() -> None:
            await break_it.wait()
            own.cancel()

        watching = asyncio.create_task(watch())
        try:
            yield "given"
        except asyncio.CancelledError:
            raise ConnectionError("the connection is gone") from None
        finally:
            watching.cancel()

    worker = bench.worker(lifespan=breaks)
    running = asyncio.create_task(worker.arun())
    while worker.health().state != "running":
        await asyncio.sleep(0)
    break_it.set()
    with pytest.raises(LifespanFailed, match=r"the lifespan .*breaks ended by itself.*the connection is gone"):
        await running


# Stopping


@bench_test
async def test_a_stop_while_it_is_entered_cancels_it(bench: Bench) -> None:
    life, begun = Life(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            life.journal.append("cancelled")
            raise

    life.entering = hang
    worker = worker_of(bench, life)
    running = asyncio.create_task(worker.arun())
    await begun.wait()
    worker.stop()
    await running
    assert life.journal == ["entering", "cancelled"]


@bench_test
async def test_a_cancelled_worker_leaves_it_too(bench: Bench) -> None:
    for moment in ("entering", "running"):
        life, begun = Life(), asyncio.Event()

        async def hang(begun: asyncio.Event = begun) -> None:
            begun.set()
            await asyncio.Event().wait()

        if moment == "entering":
            life.entering = hang
        worker = worker_of(bench, life)
        running = asyncio.create_task(worker.arun())
        while not begun.is_set() and worker.health().state != "running":
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert life.journal[-1] == ("entering" if moment == "entering" else "left")
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_lifespan_that_hangs_at_the_end_is_bounded_by_the_stop(
    stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that a stop has is made short here: what is left of it is all that a lifespan gets."""
    monkeypatch.setattr("taskharbor.worker.waiting.STORE_S", 0.05)
    monkeypatch.setattr("taskharbor.worker.waiting.CANCEL_S", 0.05)

    async def scene() -> None:
        bench, life = Bench(), Life()

        async def hang() -> None:
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    life.journal.append("cancelled")
                    if not stubborn:
                        raise

        life.leaving = hang
        worker = worker_of(bench, life)
        worker.register("t", lambda: None)
        await bench.enqueue(job("j"))
        with pytest.raises(LifespanFailed, match="did not end in the time that a stop has; it was cancelled"):
            await worker.arun(until_empty=True)
        assert life.journal[-1] == "cancelled"
        assert await bench.state("j") == "done"

    run(scene())


# How it is declared


async def a_generator() -> AsyncIterator[int]:
    yield 1


async def a_coroutine() -> None: ...


@contextmanager
def a_plain_one() -> Iterator[int]:
    yield 1


@asynccontextmanager
async def with_a_parameter(app: Any) -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def right() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (a_generator, "got a_generator without the decorator"),
        (a_coroutine, "got a_coroutine, which is not an async generator"),
        (a_plain_one, "got a_plain_one, which is not an async generator"),
        (with_a_parameter, r"got with_a_parameter\(app: "),
        (3, "got int$"),
        (right(), "got _AsyncGeneratorContextManager"),
    ],
)
def test_what_is_not_a_lifespan_is_refused_at_once(wrong: Any, told: str) -> None:
    for make in (Harbor, Worker):
        with pytest.raises(TypeError, match=f"lifespan: expected a function without parameters .*{told}"):
            make("memory://", lifespan=wrong)


@bench_test
async def test_a_lifespan_that_returns_something_else_is_a_failure(bench: Bench) -> None:
    with pytest.raises(LifespanFailed, match="expected an asynchronous context manager, got int"):
        await bench.worker(lifespan=lambda: 3).arun()


def test_a_worker_may_be_given_what_its_program_has_opened() -> None:
    """An embedded worker shares the resources of the application."""
    harbor = Harbor("memory://", lifespan=right)

    @harbor.task
    def read(given: Any = Given()) -> str:
        return str(given)

    job = read.enqueue()
    harbor.worker(lifespan=lambda: nullcontext("shared")).run(until_empty=True)
    assert job.result() == "shared"
    harbor.close()


def test_a_drain_enters_the_lifespan_once_however_many_workers_it_needs() -> None:
    life = Life()
    clock = ManualClock()
    harbor = Harbor("memory://", lifespan=life.__call__, clock=clock)
    threads: list[str] = []

    @harbor.task
    def first(given: str = Given()) -> None:
        threads.append(threading.current_thread().name)
        second.enqueue()

    @harbor.task(queue="other")
    def second(given: str = Given()) -> None: ...

    assert drain(harbor) == 0
    assert life.journal == []  # nothing to run, nothing to open
    first.enqueue()
    assert drain(harbor) == 2
    assert life.journal == ["entering", "entered", "leaving", "left"]
    harbor.close()


def test_a_lifespan_that_fails_is_an_error_of_the_drain() -> None:
    life = Life()
    life.entering = lambda: exec("raise ConnectionError('not there')")
    harbor = Harbor("memory://", lifespan=life.__call__)

    @harbor.task
    def work() -> None: ...

    work.enqueue()
    with pytest.raises(ConnectionError, match="not there"):
        drain(harbor)
    harbor.close()
