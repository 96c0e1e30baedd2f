"""What was opened for a job is closed in reverse order, before its outcome is settled, whichever way it ends."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Depends, JobContext, Snooze
from taskharbor.events import Event, JobCancelled, JobStarted, LeaseLost
from taskharbor.policy.retry import Fixed
from taskharbor.worker import Worker
from tests.worker.workbench import Bench, bench_test, heard_test, job, run

LEASE = timedelta(seconds=30)


class Scene:
    """A bench whose handler has dependencies, and a journal of what happened in which order.

        first (async) ◄── second (plain) ◄── third (async)       fourth (plain) ◄── fifth (plain)
        zeroth (plain) ◄──┘

    What a coroutine needs runs on the loop, so `zeroth` and `second` do; the last two run where the handler does.
    """

    def __init__(self, bench: Bench, colour: str) -> None:
        self.bench = bench
        self.colour = colour
        self.journal: list[str] = []
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.threads: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()

    def note(self, what: str) -> None:
        self.journal.append(what)
        self.threads[what] = threading.current_thread().name
        if what == "-first":
            self._loop.call_soon_threadsafe(self.left.set)

    @contextmanager
    def noting(self, name: str) -> Iterator[str]:
        self.note(f"+{name}")
        try:
            yield name
        except BaseException as error:
            self.note(f"{name} sees {type(error).__name__}")
            raise
        finally:
            self.note(f"-{name}")

    def handler(self, body: Callable[[JobContext], Any]) -> Callable[..., Any]:
        async def first() -> AsyncIterator[str]:
            with self.noting("first"):
                yield "1"
            await asyncio.sleep(0)  # what closes may wait

        def zeroth() -> Iterator[str]:
            with self.noting("zeroth"):
                yield "0"

        def second(before: str = Depends(first), base: str = Depends(zeroth)) -> Iterator[str]:
            with self.noting("second"):
                yield f"{base}{before}2"

        @asynccontextmanager
        async def third(before: str = Depends(second)) -> AsyncIterator[str]:
            with self.noting("third"):
                yield f"{before}3"

        @contextmanager
        def fourth() -> Iterator[str]:
            with self.noting("fourth"):
                yield "4"

        def fifth(ctx: JobContext, before: str = Depends(fourth)) -> Iterator[str]:
            with self.noting("fifth"):
                yield f"{before}5 of {ctx.job.id}"

        async def coroutine(ctx: JobContext, a: str = Depends(third), b: str = Depends(fifth)) -> Any:
            self.note(f"handler {a} {b}")
            self.entered.set()
            return await body(ctx)

        def plain(ctx: JobContext, a: str = Depends(third), b: str = Depends(fifth)) -> Any:
            self.note(f"handler {a} {b}")
            self._loop.call_soon_threadsafe(self.entered.set)
            return body(ctx)

        return coroutine if self.colour == "coroutine" else plain

    def settled(self, event: Event) -> None:
        kind = type(event).__name__
        if kind in {"JobSucceeded", "JobRetried", "JobSnoozed", "JobGivenBack", "JobDeadLettered"}:
            self.journal.append(kind)


NAMES = ("first", "zeroth", "second", "third", "fourth", "fifth")
OPENED = [*(f"+{name}" for name in NAMES), "handler 0123 45 of j"]


def closed(error: str = "") -> list[str]:
    return [line for name in reversed(NAMES) for line in ((f"{name} sees {error}",) if error else ()) + (f"-{name}",)]


def both_colours(test: Callable[[Bench, str], Coroutine[Any, Any, None]]) -> Any:
    @pytest.mark.parametrize("colour", ["coroutine", "plain"])
    def wrapped(colour: str) -> None:
        run(test(Bench(), colour))

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


def raising(error: BaseException) -> Callable[[JobContext], Any]:
    def body(ctx: JobContext) -> Any:
        raise error

    return body


def in_colour(colour: str, value: Any = None) -> Callable[[JobContext], Any]:
    """A body that returns a value."""

    async def coroutine(ctx: JobContext) -> Any:
        return value

    return coroutine if colour == "coroutine" else lambda ctx: value


def scene_of(bench: Bench, colour: str, body: Callable[[JobContext], Any], **options: Any) -> tuple[Scene, Worker]:
    scene = Scene(bench, colour)
    worker = bench.worker(retry=Fixed(3600), **options)
    worker._observers.add(scene.settled)
    worker.register("t", scene.handler(body))
    return scene, worker


@both_colours
async def test_after_a_success(bench: Bench, colour: str) -> None:
    scene, worker = scene_of(bench, colour, in_colour(colour, 5))
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert scene.journal == [*OPENED, *closed(), "JobSucceeded"]
    assert (await bench.info("j")).job.result == b"5"


@both_colours
async def test_after_a_failure(bench: Bench, colour: str) -> None:
    scene, worker = scene_of(bench, colour, raising(ValueError("no")))
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert scene.journal == [*OPENED, *closed("ValueError"), "JobRetried"]
    assert (await bench.info("j")).job.last_error.startswith("ValueError: no\n")


@both_colours
async def test_after_a_snooze(bench: Bench, colour: str) -> None:
    scene, worker = scene_of(bench, colour, raising(Snooze(60)))
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert scene.journal[: len(OPENED) + 12] == [*OPENED, *closed("Snooze")]
    assert await bench.state("j") == "scheduled"


@both_colours
async def test_after_a_timeout(bench: Bench, colour: str) -> None:
    released = threading.Event()

    async def hangs(ctx: JobContext) -> None:
        await asyncio.Event().wait()

    def waits(ctx: JobContext) -> None:
        assert ctx.cancelled.wait(20)
        assert released.wait(20)

    scene, worker = scene_of(bench, colour, hangs if colour == "coroutine" else waits)
    await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
    async with bench.running(worker):
        await scene.entered.wait()
        bench.clock.advance(5)
        if colour == "plain":  # a thread cannot be interrupted: its job is decided, and its resources stay open
            while "JobRetried" not in scene.journal:
                await asyncio.sleep(0)
            assert scene.journal == [*OPENED, "JobRetried"]
            released.set()
        await scene.left.wait()
        while "JobRetried" not in scene.journal:
            await asyncio.sleep(0)
    if colour == "plain":  # the function itself ended well, so what closed in its thread saw no error
        assert scene.journal[8:10] == ["-fifth", "-fourth"]
        assert scene.journal[10:] == closed("CancelledError")[4:]
    else:
        assert scene.journal == [*OPENED, *closed("CancelledError"), "JobRetried"]
    assert (await bench.info("j")).job.last_error.startswith("TimeoutError: timed out after 5 s")


@both_colours
async def test_at_a_shutdown_that_does_not_wait(bench: Bench, colour: str) -> None:
    async def hangs(ctx: JobContext) -> None:
        await asyncio.Event().wait()

    def checks(ctx: JobContext) -> None:
        ctx.cancelled.wait(20)
        ctx.cancelled.check()

    scene, worker = scene_of(bench, colour, hangs if colour == "coroutine" else checks)
    await bench.enqueue(job("j"))
    running = asyncio.create_task(worker.arun())
    await scene.entered.wait()
    worker.hurry()
    await scene.left.wait()
    await running
    assert [line for line in scene.journal if line[0] in "+-h"] == [*OPENED, *closed()]
    assert {line.partition(" sees ")[2] for line in scene.journal if " sees " in line} <= {"CancelledError", "Shutdown"}
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("ready", 0)


@both_colours
async def test_when_the_job_is_cancelled_or_its_lease_is_lost(bench: Bench, colour: str) -> None:
    for loss in (JobCancelled, LeaseLost):
        bench = Bench()

        async def hangs(ctx: JobContext) -> None:
            await asyncio.Event().wait()

        def waits(ctx: JobContext) -> None:
            ctx.cancelled.wait(20)

        scene, worker = scene_of(bench, colour, hangs if colour == "coroutine" else waits, lease=30, heartbeat=10)
        await bench.enqueue(job("j"))
        async with bench.running(worker):
            await scene.entered.wait()
            await bench.driver.pause("default")
            if loss is JobCancelled:
                assert await bench.driver.cancel(["j"], bench.clock.now()) == [None]
            else:
                await bench.driver.release(worker.name, bench.clock.now())
                await bench.driver.resume("default")
                await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "other")
            bench.clock.advance(10)
            await bench.heard(loss)
            await scene.left.wait()
        assert [line for line in scene.journal if line[0] in "+-h"] == [*OPENED, *closed()]
        assert "first sees CancelledError" in scene.journal
        assert "JobSucceeded" not in scene.journal


@bench_test
async def test_a_stop_waits_for_what_the_loop_closes_after_a_thread(bench: Bench) -> None:
    """The job was decided without its thread. When that has ended, its session is closed before the pool is."""
    journal: list[str] = []
    entered, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def pool() -> AsyncIterator[None]:
        yield
        journal.append("-pool")

    async def session() -> AsyncIterator[None]:
        try:
            yield
        finally:
            for _ in range(100):  # rolling back takes a while
                await asyncio.sleep(0)
            journal.append("-session")

    def handler(ctx: JobContext, db: None = Depends(session)) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert released.wait(20)
        journal.append("handler")

    worker = bench.worker(lifespan=pool, retry=Fixed(3600))
    worker.register("t", handler)
    await bench.enqueue(job("j", timeout=timedelta(seconds=5)))
    running = asyncio.create_task(worker.arun())
    await entered.wait()
    bench.clock.advance(5)
    while await bench.state("j") != "scheduled":
        await asyncio.sleep(0)
    worker.stop()
    released.set()
    await running
    assert journal == ["handler", "-session", "-pool"]


@bench_test
async def test_a_plain_function_has_its_own_dependencies_in_its_thread(bench: Bench) -> None:
    scene, worker = scene_of(bench, "plain", in_colour("plain"))
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    here = threading.current_thread().name
    assert {scene.threads[f"{sign}{name}"] for name in NAMES[:4] for sign in "+-"} == {here}
    (thread,) = {scene.threads[f"{sign}{name}"] for name in NAMES[4:] for sign in "+-"}
    assert thread == scene.threads[OPENED[-1]] != here


@bench_test
async def test_a_coroutine_has_all_of_them_on_the_loop(bench: Bench) -> None:
    scene, worker = scene_of(bench, "coroutine", in_colour("coroutine"))
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert set(scene.threads.values()) == {threading.current_thread().name}


# Failures of what opens and closes


def opens_badly() -> Iterator[None]:
    raise ConnectionError("not there")
    yield


def closes_badly() -> Iterator[None]:
    yield
    raise ConnectionError("cannot be closed")


async def closes_badly_async() -> AsyncIterator[None]:
    try:
        yield
    finally:
        raise ConnectionError("cannot be closed")


def closes_badly_either_way() -> Iterator[None]:
    try:
        yield
    finally:
        raise ConnectionError("cannot be closed")


def swallows() -> Iterator[None]:
    try:
        yield
    except BaseException:
        pass


async def swallows_async() -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        pass


def ends_early() -> Iterator[None]:
    if ends_early.__name__ == "":
        yield


async def ends_early_async() -> AsyncIterator[None]:
    if ends_early.__name__ == "":
        yield


def yields_twice() -> Iterator[None]:
    yield
    yield


async def ending(bench: Bench, colour: str, dependency: Any, body: Callable[[], None]) -> tuple[Any, list[str]]:
    """The record of a job whose handler needs a dependency after another one, `kept`, which must be closed as well."""
    journal: list[str] = []

    def kept() -> Iterator[str]:
        journal.append("+kept")
        try:
            yield "kept"
        finally:
            journal.append("-kept")

    async def coroutine(a: str = Depends(kept), x: None = Depends(dependency)) -> None:
        journal.append("handler")
        body()

    def plain(a: str = Depends(kept), x: None = Depends(dependency)) -> None:
        journal.append("handler")
        body()

    worker = await bench.ran(coroutine if colour == "coroutine" else plain, job("j"), retry=Fixed(3600))
    assert worker.health().running == 0
    return (await bench.info("j")).job, journal


def fails() -> None:
    raise ValueError("of the handler")


def returns() -> None: ...


RAN = ["+kept", "handler", "-kept"]


@both_colours
async def test_what_cannot_be_opened_fails_the_job_and_the_rest_is_closed(bench: Bench, colour: str) -> None:
    record, journal = await ending(bench, colour, opens_badly, returns)
    assert record.last_error.startswith("ConnectionError: not there\n")
    # A coroutine needs `kept` on the loop, before it; in a thread as well: both are closed where they were opened.
    assert journal == ["+kept", "-kept"]
    assert record.attempts == 1


@pytest.mark.parametrize("dependency", [closes_badly, closes_badly_async, closes_badly_either_way])
@pytest.mark.parametrize("colour", ["coroutine", "plain"])
@heard_test
async def test_what_cannot_be_closed_after_a_success_is_a_failure(bench: Bench, colour: str, dependency: Any) -> None:
    record, journal = await ending(bench, colour, dependency, returns)
    assert record.last_error.startswith("ConnectionError: cannot be closed\n")
    assert (record.attempts, record.result) == (1, None)
    assert sorted(journal) == sorted(RAN)


@pytest.mark.parametrize("dependency", [closes_badly_async, closes_badly_either_way])
@pytest.mark.parametrize("colour", ["coroutine", "plain"])
@heard_test
async def test_what_cannot_be_closed_after_a_failure_is_a_note(
    bench: Bench, colour: str, dependency: Any, caplog: pytest.LogCaptureFixture
) -> None:
    record, journal = await ending(bench, colour, dependency, fails)
    assert record.last_error.startswith("ValueError: of the handler\n")
    note = f"closing {dependency.__name__} failed too: ConnectionError: cannot be closed"
    assert note in record.last_error
    assert record.error_class.endswith("ValueError")
    assert sorted(journal) == sorted(RAN)
    (line,) = [each for each in caplog.records if "closing" in each.message]
    assert line.message == f"job j: closing {dependency.__name__} failed with ConnectionError, after the job had failed"
    assert line.job_id == "j"  # type: ignore[attr-defined]  # an extra of the log


@pytest.mark.parametrize("dependency", [swallows, swallows_async])
@pytest.mark.parametrize("colour", ["coroutine", "plain"])
@heard_test
async def test_a_dependency_cannot_turn_a_failure_into_a_success(bench: Bench, colour: str, dependency: Any) -> None:
    record, _ = await ending(bench, colour, dependency, fails)
    assert record.last_error.startswith("ValueError: of the handler\n")
    assert record.attempts == 1


@both_colours
async def test_a_dependency_that_yields_twice_is_a_failure(bench: Bench, colour: str) -> None:
    record, _ = await ending(bench, colour, yields_twice, returns)
    assert record.last_error.startswith("RuntimeError: generator didn't stop")


@both_colours
async def test_a_dependency_that_does_not_yield_is_named(bench: Bench, colour: str) -> None:
    for dependency in (ends_early, ends_early_async):
        record, journal = await ending(Bench(), colour, dependency, returns)
        assert record.last_error.startswith(f"RuntimeError: the dependency {dependency.__name__} ended without a yield")
        assert "handler" not in journal


@both_colours
async def test_a_plain_dependency_that_returns_a_coroutine_is_refused(bench: Bench, colour: str) -> None:
    async def made() -> int:
        return 1

    record, journal = await ending(bench, colour, lambda: made(), returns)
    assert "the dependency" in record.last_error
    assert "returned a coroutine; make it an async def" in record.last_error
    assert "handler" not in journal


@bench_test
async def test_a_note_of_a_timeout_is_kept(bench: Bench) -> None:
    started = asyncio.Event()

    async def handler(x: None = Depends(closes_badly_async)) -> None:
        started.set()
        await asyncio.Event().wait()

    async with bench.serving(handler, job("j", timeout=timedelta(seconds=5)), retry=Fixed(3600)):
        await started.wait()
        bench.clock.advance(5)
        while (await bench.info("j")).job.attempts == 0:
            await asyncio.sleep(0)
    told = (await bench.info("j")).job.last_error
    assert told.startswith("TimeoutError: timed out after 5 s")
    assert "closing closes_badly_async failed too: ConnectionError" in told


@bench_test
async def test_a_handler_is_not_called_if_its_job_was_stopped_while_dependencies_opened(bench: Bench) -> None:
    """A dependency in a thread cannot be interrupted; the job times out meanwhile, and is retried."""
    opening, go_on, closed, called = asyncio.Event(), threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def slow() -> Iterator[None]:
        loop.call_soon_threadsafe(opening.set)
        go_on.wait(20)
        yield
        loop.call_soon_threadsafe(closed.set)

    def seen() -> Iterator[None]:
        try:
            yield
        finally:
            loop.call_soon_threadsafe(closed.set)

    def handler(y: None = Depends(seen), x: None = Depends(slow)) -> None:
        called.append(1)

    async with bench.serving(handler, job("j", timeout=timedelta(seconds=5)), retry=Fixed(3600)):
        await opening.wait()
        bench.clock.advance(5)
        while (await bench.info("j")).job.attempts == 0:
            await asyncio.sleep(0)
        go_on.set()
        await closed.wait()
    assert called == []


# Several jobs, middleware


@bench_test
async def test_two_jobs_at_once_share_nothing_that_was_made_for_one(bench: Bench) -> None:
    made: list[object] = []
    both = asyncio.Event()
    seen: dict[str, tuple[object, object]] = {}

    async def session() -> AsyncIterator[object]:
        made.append(object())
        yield made[-1]

    def same(session: object = Depends(session)) -> object:
        return session

    async def handler(ctx: JobContext, a: object = Depends(session), b: object = Depends(same)) -> None:
        seen[ctx.job.id] = (a, b)
        if len(seen) == 2:
            both.set()
        await both.wait()

    await bench.ran(handler, job("a"), job("b"), concurrency=2)
    assert len(made) == 2
    assert seen["a"][0] is seen["a"][1]
    assert seen["b"][0] is seen["b"][1]
    assert seen["a"][0] is not seen["b"][0]


@pytest.mark.parametrize(
    ("colour", "expected"),
    [
        ("coroutine", ["mw+", "call+", "+loop", "+thread", "handler", "-thread", "-loop", "call-", "mw-"]),
        ("plain", ["mw+", "+loop", "call+", "+thread", "handler", "-thread", "call-", "-loop", "mw-"]),
    ],
)
@heard_test
async def test_dependencies_are_inside_middleware_and_call_middleware_is_in_their_thread(
    bench: Bench, colour: str, expected: list[str]
) -> None:
    journal: list[str] = []
    threads: dict[str, str] = {}

    def note(what: str) -> None:
        journal.append(what)
        threads[what] = threading.current_thread().name

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        note("mw+")
        try:
            return await call_next(ctx)
        except ConnectionError:
            note("mw sees it")
            raise
        finally:
            note("mw-")

    @contextmanager
    def call_middleware(ctx: JobContext) -> Iterator[None]:
        note("call+")
        yield
        note("call-")

    async def on_loop() -> AsyncIterator[None]:
        note("+loop")
        yield
        note("-loop")

    def in_thread() -> Iterator[None]:
        note("+thread")
        yield
        note("-thread")

    async def coroutine(a: None = Depends(on_loop), b: None = Depends(in_thread)) -> None:
        note("handler")

    def plain(a: None = Depends(on_loop), b: None = Depends(in_thread)) -> None:
        note("handler")

    worker = bench.worker(middleware=[middleware], call_middleware=[call_middleware])
    worker.register("t", coroutine if colour == "coroutine" else plain)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    assert journal == expected
    inside = {threads[what] for what in ("call+", "+thread", "handler", "-thread", "call-")}
    assert len(inside) == 1
    assert (inside == {threads["mw+"]}) is (colour == "coroutine")


@heard_test
async def test_middleware_sees_what_could_not_be_closed(bench: Bench) -> None:
    seen: list[BaseException] = []

    async def middleware(ctx: JobContext, call_next: Any) -> Any:
        try:
            return await call_next(ctx)
        except BaseException as error:
            seen.append(error)
            raise

    async def handler(x: None = Depends(closes_badly_async)) -> None: ...

    await bench.ran(handler, job("j"), middleware=[middleware], retry=Fixed(3600))
    assert [type(error) for error in seen] == [ConnectionError]
    assert len(bench.of(JobStarted)) == 1


@bench_test
async def test_a_task_of_a_task_group_that_fails_is_the_error_of_the_job(bench: Bench) -> None:
    async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as group:
            yield group

    async def fail() -> None:
        raise ConnectionError("the api is gone")

    async def handler(group: asyncio.TaskGroup = Depends(tasks)) -> None:
        group.create_task(fail())
        await asyncio.Event().wait()

    await bench.ran(handler, job("j"), retry=Fixed(3600))
    record = (await bench.info("j")).job
    assert record.error_class == "ConnectionError"
    assert record.last_error.startswith("ConnectionError: the api is gone")
