"""Jobs that are decided while their handlers go on inside ctx.transaction(): it is undone first, then they are settled.

On SQLite an open transaction keeps all others from writing, the worker's own outcomes included. A function in a
thread cannot be ended, so its transaction has to be.
"""

import asyncio
import gc
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.client import Client, JobRequest
from taskharbor.drivers import open_driver
from taskharbor.events import HandlerFreed, JobCancelled, JobDeadLettered, JobGivenBack, JobStarted, JobSucceeded
from taskharbor.model.lease import Lease
from taskharbor.policy.retry import Fixed
from taskharbor.testing.clock import START
from taskharbor.worker.threads import Threads
from taskharbor.worker.transaction import HandlerTransaction
from tests.worker.test_transaction import on_sql
from tests.worker.workbench import PATIENCE, Bench, bench_test, job, run


class Stubborn:
    """A handler of either colour that holds its transaction, whatever stops it, until the test lets it go."""

    def __init__(self) -> None:
        self.holds, self.let_go = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()
        self.told: list[str] = []

    def function(self, ctx: JobContext) -> None:
        with ctx.transaction() as writes:
            writes.append("row")
            self._loop.call_soon_threadsafe(self.holds.set)
            assert self.let_go.wait(PATIENCE)

    async def coroutine(self, ctx: JobContext) -> None:
        async with ctx.transaction() as writes:
            writes.append("row")
            self.holds.set()
            while not self.let_go.is_set():
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    continue

    def late(self, ctx: JobContext) -> None:
        self._loop.call_soon_threadsafe(self.holds.set)
        assert self.let_go.wait(PATIENCE)
        try:
            ctx.transaction()
        except RuntimeError as error:
            self.told.append(str(error))


@contextmanager
def stubborn() -> Iterator[Stubborn]:
    found = Stubborn()
    try:
        yield found
    finally:
        found.let_go.set()


both_colours = pytest.mark.parametrize("colour", ["coroutine", "function"])


async def until_aborted(table: Any) -> None:
    while not table.aborted:
        await asyncio.sleep(0)


@both_colours
@pytest.mark.parametrize("how", ["timeout", "stop", "cancelled"])
@bench_test
async def test_a_transaction_is_undone_before_its_job_is_settled(bench: Bench, how: str, colour: str) -> None:
    table = on_sql(bench)
    worker = bench.worker(shutdown_timeout=0, lease=300, retry=Fixed(3600))
    with stubborn() as handler:
        worker.register("t", getattr(handler, colour))
        await bench.enqueue(job("j", timeout=timedelta(seconds=60 if how == "timeout" else 600), max_attempts=1))
        running = asyncio.create_task(worker.arun())
        await handler.holds.wait()
        if how == "timeout":
            bench.clock.advance(60)
            while colour == "coroutine" and not table.aborted:  # it is cancelled first, and given a moment
                await asyncio.sleep(0)
                bench.clock.advance(0.5)
            await bench.heard(JobDeadLettered)
            assert table.aborted == "it timed out"
        elif how == "stop":
            worker.stop()
            await bench.heard(JobGivenBack)
            assert table.aborted == "its worker stops"
        else:
            await bench.driver.cancel("j", bench.clock.now())
            bench.clock.advance(100)  # the next heartbeat
            await bench.heard(JobCancelled)
            await until_aborted(table)
            assert table.aborted == "it was cancelled"
    worker.hurry()
    await running
    assert list(table) == []


@both_colours
@bench_test
async def test_a_function_that_ends_after_its_timeout_commits_nothing(bench: Bench, colour: str) -> None:
    table = on_sql(bench)
    worker = bench.worker(lease=300, retry=Fixed(3600))
    with stubborn() as handler:
        worker.register("t", getattr(handler, colour))
        await bench.enqueue(job("j", timeout=timedelta(seconds=60), max_attempts=1))
        async with bench.running(worker):
            await handler.holds.wait()
            bench.clock.advance(60)
            while not bench.of(JobDeadLettered):
                await asyncio.sleep(0)
                bench.clock.advance(0.5)
            handler.let_go.set()
            while worker.health().running:
                await asyncio.sleep(0)
    assert (list(table), table.ends) == ([], 1)  # the rollback at its end closes what is left
    assert await bench.state("j") == "dlq"


@bench_test
async def test_no_transaction_begins_after_the_job_is_decided(bench: Bench) -> None:
    table = on_sql(bench)
    worker = bench.worker(lease=300)
    with stubborn() as handler:
        worker.register("t", handler.late)
        await bench.enqueue(job("j", timeout=timedelta(seconds=60), max_attempts=1))
        async with bench.running(worker):
            await handler.holds.wait()
            bench.clock.advance(60)
            await bench.heard(JobDeadLettered)
            bench.clock.advance(5)  # from then on it counts as stuck
            handler.let_go.set()
            await bench.heard(HandlerFreed)
    assert "after its job had ended" in handler.told[0]
    assert (list(table), table.ends) == ([], 1)


def test_a_loop_that_ends_before_a_rollback_begins_leaves_no_coroutine_behind() -> None:
    """As asyncio.run does it: whatever is not done when the program returns is cancelled, also what has not begun."""
    begun = []

    async def rollback() -> None:
        begun.append(1)

    async def program() -> None:
        driver: Any = SimpleNamespace(transaction=lambda lease: SimpleNamespace(rollback=rollback))
        held = HandlerTransaction(driver, Lease("j", "default", "token", START), True, Threads("none"))
        ending = asyncio.create_task(held.rollback())
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task(), ending}
        for task in others:
            task.cancel()
        await asyncio.wait((ending,))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(program())
        gc.collect()
    assert not begun


@bench_test
async def test_a_function_that_middleware_gives_up_commits_nothing(bench: Bench) -> None:
    """Its middleware answers in its place while it is in the middle of its writes."""
    table = on_sql(bench)
    with stubborn() as handler:

        async def impatient(ctx: JobContext, call_next: Any) -> Any:
            call = asyncio.ensure_future(call_next(ctx))
            await handler.holds.wait()
            call.cancel()
            await asyncio.wait((call,))
            return "a default"

        worker = bench.worker(middleware=[impatient])
        worker.register("t", handler.function)
        await bench.enqueue(job("j"))
        async with bench.running(worker):
            await bench.heard(JobSucceeded)
    assert (list(table), table.aborted) == ([], "middleware gave it up")
    assert (await bench.info("j")).job.result == b'"a default"'


def test_others_can_write_to_a_sqlite_file_while_a_function_outlives_its_timeout(tmp_path: Path) -> None:
    """The outcome of the very job, a job of another program, and its execution: all beside a function that hangs."""

    async def scenario() -> None:
        bench = Bench(open_driver(f"sqlite:///{tmp_path / 'jobs.db'}"))
        await bench.driver.open()
        worker = bench.worker(lease=300, poll_interval=0.01)
        holds, let_go, told = asyncio.Event(), threading.Event(), list[str]()
        loop = asyncio.get_running_loop()

        def hangs(ctx: JobContext) -> None:
            with ctx.transaction() as connection:
                connection.execute("CREATE TABLE orders (id INTEGER)")
                loop.call_soon_threadsafe(holds.set)
                assert let_go.wait(PATIENCE)
                try:
                    connection.execute("INSERT INTO orders VALUES (1)")
                except sqlite3.InterfaceError as error:
                    told.append(str(error))

        worker.register("hangs", hangs)
        worker.register("fresh", lambda: None)
        await bench.enqueue(job("h", "hangs", timeout=timedelta(seconds=60), max_attempts=1))
        async with bench.running(worker):
            await holds.wait()
            bench.clock.advance(60)
            await bench.heard(JobDeadLettered)
            async with Client(f"sqlite:///{tmp_path / 'jobs.db'}", clock=bench.clock) as elsewhere:
                await elsewhere.aenqueue(JobRequest(type="fresh", payload={}))
            await bench.heard(JobSucceeded)
            let_go.set()
            while worker.health().running:
                await asyncio.sleep(0)
        assert "because it timed out" in told[0]
        assert (await bench.state("h"), len(bench.of(JobStarted))) == ("dlq", 2)
        await bench.driver.close()

    run(scenario())
