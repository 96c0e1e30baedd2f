"""Call middleware: context managers around the call of a handler, where the handler runs."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from taskharbor import Harbor, JobContext
from taskharbor.policy.retry import Fixed
from taskharbor.testing import drain
from taskharbor.worker.middleware import CallMiddleware
from tests.worker import process_handlers as handlers
from tests.worker.workbench import Bench, bench_test, job, run


def noting(notes: list[tuple[str, str, str]], name: str) -> CallMiddleware:
    @contextmanager
    def layer(ctx: JobContext) -> Iterator[None]:
        notes.append((name, ctx.job.id, threading.current_thread().name))
        try:
            yield
        finally:
            notes.append((f"/{name}", ctx.job.id, threading.current_thread().name))

    return layer


@bench_test
async def test_call_middleware_runs_in_the_thread_of_the_handler(bench: Bench) -> None:
    notes: list[tuple[str, str, str]] = []
    worker = bench.worker(call_middleware=[noting(notes, "outer"), noting(notes, "inner")])

    @worker.handler("plain")
    def plain(ctx: JobContext) -> None:
        notes.append(("handler", ctx.job.id, threading.current_thread().name))

    @worker.handler("coroutine")
    async def coroutine(ctx: JobContext) -> None:
        await asyncio.sleep(0)
        notes.append(("handler", ctx.job.id, threading.current_thread().name))

    @worker.handler("without a context")
    async def bare() -> None:
        notes.append(("handler", "c", threading.current_thread().name))

    await bench.enqueue(job("a", "plain"), job("b", "coroutine"), job("c", "without a context"))
    await worker.arun(until_empty=True)
    for id in "abc":
        mine = [note for note in notes if note[1] == id]
        assert [name for name, _, _ in mine] == ["outer", "inner", "handler", "/inner", "/outer"]
        (thread,) = {thread for _, _, thread in mine}
        assert (thread == threading.current_thread().name) is (id != "a")
        assert await bench.state(id) == "done"


@pytest.mark.parametrize("colour", ["plain", "coroutine", "process"])
@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ([handlers.swallows], "ValueError: of the handler"),
        ([handlers.swallows, handlers.refuses], "PermissionError: not today"),
        ([handlers.refuses], "PermissionError: not today"),
        ([handlers.fails_afterwards], "ConnectionError: could not be closed"),
    ],
    ids=["swallows", "swallows-refuses", "refuses", "fails-afterwards"],
)
def test_call_middleware_cannot_turn_a_failure_into_a_success(
    colour: str, layers: list[CallMiddleware], told: str
) -> None:
    fails = handlers.fails_afterwards not in layers

    async def scene() -> None:
        bench, called = Bench(), 0
        worker = bench.worker(call_middleware=layers, retry=Fixed(3600))

        def plain() -> None:
            nonlocal called
            called += 1
            if fails:
                raise ValueError("of the handler")

        async def coroutine() -> None:
            plain()

        if colour == "process":
            worker.register("j", handlers.fails if fails else handlers.where, process=True)
        else:
            worker.register("j", {"plain": plain, "coroutine": coroutine}[colour])
        await bench.enqueue(job("j", "j"))
        await worker.arun(until_empty=True)
        record = (await bench.info("j")).job
        assert record.last_error.splitlines()[0] == told
        assert record.attempts == 1
        assert worker.health().running == 0
        assert called == (0 if colour == "process" or handlers.refuses in layers else 1)

    run(scene())


@bench_test
async def test_call_middleware_runs_in_the_child_process(bench: Bench) -> None:
    worker = bench.worker(call_middleware=[handlers.noting_the_process])
    worker.register("where", handlers.what_was_noted, process=True)
    await bench.enqueue(job("a", "where"))
    await worker.arun(until_empty=True)
    noted, pid = msgspec.json.decode((await bench.info("a")).job.result or b"null")
    assert noted == pid != os.getpid()


@bench_test
async def test_call_middleware_that_cannot_be_imported_is_refused_with_a_hint(bench: Bench) -> None:
    worker = bench.worker(call_middleware=[noting([], "local")], retry=Fixed(3600))
    worker.register("where", handlers.where, process=True)
    await bench.enqueue(job("a", "where"))
    await worker.arun(until_empty=True)
    told = (await bench.info("a")).job.last_error
    assert "expected functions that a child process can import, got noting.<locals>.layer" in told


@bench_test
async def test_call_middleware_missing_in_the_child_fails_the_job(bench: Bench) -> None:
    worker = bench.worker(call_middleware=[handlers.Ghost()], retry=Fixed(3600))
    worker.register("where", handlers.where, process=True)
    await bench.enqueue(job("a", "where"))
    await worker.arun(until_empty=True)
    assert (await bench.info("a")).job.last_error.splitlines()[0] == "ModuleNotFoundError: No module named 'ghost'"


def test_a_harbor_passes_call_middleware_to_its_workers_and_to_drain() -> None:
    notes: list[tuple[str, str, str]] = []
    harbor = Harbor("memory://", call_middleware=[noting(notes, "layer")])

    @harbor.task
    def add(x: int) -> int:
        return x + 1

    add.enqueue(1)
    drain(harbor)
    assert [name for name, _, _ in notes] == ["layer", "/layer"]
    harbor.close()


@pytest.mark.parametrize("wrong", [3, [3]])
def test_call_middleware_that_is_not_callable_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="call_middleware: expected"):
        Harbor("memory://", call_middleware=wrong)
