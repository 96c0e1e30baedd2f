"""Threads for plain functions: context, errors of every kind, closed loops, and never more threads than calls."""

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from taskharbor.worker.threads import Threads, unwrap

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("under-test-")]


def joined() -> None:
    for thread in ours():
        thread.join(30)
    assert ours() == []


def test_context_variables_are_copied_there_and_not_back():
    def look() -> str:
        found = variable.get()
        variable.set("set in the thread")
        return found

    async def scenario() -> None:
        threads = Threads("under-test")
        variable.set("the caller's")
        assert await threads.run(look) == "the caller's"
        assert variable.get() == "the caller's"
        assert await threads.run(look) == "the caller's"  # the same thread again: nothing of the last call is left
        threads.close()

    run(scenario())
    joined()


@pytest.mark.parametrize(
    "kind",
    [
        ValueError,
        StopIteration,
        StopAsyncIteration,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
    ],
)
def test_what_a_function_raises_comes_back_whatever_it_is(kind: type[BaseException]):
    error = kind("x")

    def fail() -> None:
        raise error

    async def scenario() -> None:
        threads = Threads("under-test")
        caught: list[BaseException] = []
        try:
            await threads.run(fail)
        except Exception as raised:
            caught.append(unwrap(raised))
        assert caught == [error]
        assert await threads.run(lambda: "still there") == "still there"
        threads.close()

    run(scenario())
    joined()


def test_there_are_never_more_threads_than_calls_at_once():
    async def scenario() -> None:
        threads, gate, started = Threads("under-test"), threading.Event(), threading.Semaphore(0)

        def wait() -> str:
            started.release()
            gate.wait(30)
            return threading.current_thread().name

        for _ in range(50):
            await threads.run(lambda: None)
        assert len(ours()) == 1  # one after the other: one thread
        calls = [threads.run(wait) for _ in range(4)]
        for _ in calls:
            await asyncio.to_thread(started.acquire)
        assert len(ours()) == 4
        gate.set()
        assert sorted(await asyncio.gather(*calls)) == [f"under-test-{number}" for number in (1, 2, 3, 4)]
        for _ in range(200):
            await asyncio.gather(*(threads.run(lambda: None) for _ in range(4)))
        assert len(ours()) == 4
        assert all(thread.daemon for thread in ours())
        threads.close()

    run(scenario())
    joined()


def test_a_loop_that_is_closed_while_a_thread_runs_is_no_crash():
    gate, running = threading.Event(), threading.Event()
    complaints: list[Any] = []
    before, threading.excepthook = threading.excepthook, complaints.append

    def wait() -> None:
        running.set()
        gate.wait(30)

    async def scenario() -> None:
        threads = Threads("under-test")
        threads.run(wait)
        await asyncio.to_thread(running.wait, 30)
        threads.close()

    try:
        run(scenario())
        gate.set()
        joined()
    finally:
        threading.excepthook = before
    assert complaints == []


def test_a_call_that_nobody_waits_for_any_more_is_thrown_away():
    async def scenario() -> None:
        threads, gate = Threads("under-test"), threading.Event()

        def fail() -> None:
            gate.wait(30)
            raise ValueError("lost")

        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        call = threads.run(fail)
        call.cancel()
        gate.set()
        threads.close()
        await asyncio.to_thread(joined)  # the thread has handed its result over: it is the loop's turn
        await asyncio.sleep(0)
        assert complaints == []

    run(scenario())
    joined()


def test_nothing_of_a_job_outlives_it_in_an_idle_thread():
    class Big:
        pass

    async def scenario() -> None:
        threads, big = Threads("under-test"), Big()
        gone = weakref.ref(big)
        assert await threads.run(lambda held=big: type(held).__name__) == "Big"  # type: ignore[misc]  # a default binds the loop's variable
        del big
        await threads.run(lambda: None) if gone() is None else None
        for _ in range(1000):
            gc.collect()
            if gone() is None:
                break
            await asyncio.sleep(0)
        assert gone() is None
        threads.close()

    run(scenario())
    joined()


def test_closing_lets_busy_threads_end_after_what_they_do():
    async def scenario() -> None:
        threads, gate = Threads("under-test"), threading.Event()
        call = threads.run(lambda: gate.wait(30))
        threads.close()
        gate.set()
        assert await call is True

    run(scenario())
    joined()


def test_only_what_was_wrapped_is_unwrapped():
    error = ValueError("x")
    assert unwrap(error) is error


def test_a_call_after_the_close_is_made_all_the_same_beside_one_that_never_ends():
    """A function that outlives its worker ends its transaction after that: nobody may wait for it for ever."""
    let_go = threading.Event()

    async def scenario() -> None:
        threads = Threads("under-test")
        busy = threads.run(lambda: let_go.wait(30))
        threads.close()
        assert await threads.run(lambda: "made") == "made"
        let_go.set()
        await busy
        assert await threads.run(lambda: "made") == "made"

    run(scenario())
    joined()
