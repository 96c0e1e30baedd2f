"""The end of ctx.transaction(): nothing interrupts it, nobody forgets it, and one that never comes costs no job."""

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import JobContext, Unrecoverable
from taskharbor.drivers import Ack, Lease, TaskHarborError
from taskharbor.events import (
    JobDeadLettered,
    JobFailed,
    JobReserved,
    JobRetried,
    JobSucceeded,
    OutcomeRefused,
    WorkerStopped,
    WorkerStopping,
)
from taskharbor.policy.retry import Fixed
from taskharbor.worker import executor
from taskharbor.worker.worker import Worker
from tests.worker.test_transaction import Fake, FakeSync, SqlMemory, Table
from tests.worker.workbench import Bench, bench_test, heard_test, job


class Gate:
    """Blocks the end of a transaction, on a loop or in a thread, until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = asyncio.Event(), asyncio.Event()
        self._open_in_threads = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def hold(self) -> None:
        self.reached.set()
        await self._open.wait()

    def hold_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._open_in_threads.wait(60)

    def open(self) -> None:
        self._open.set()
        self._open_in_threads.set()


class SlowFake(Fake):
    def __init__(self, driver: Any, table: Table, gates: dict[str, Gate]) -> None:
        super().__init__(driver, table)
        self.gates = gates

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        if "commit" in self.gates:
            await self.gates["commit"].hold()
        return await super().commit(ack, now)

    async def rollback(self) -> None:
        if "rollback" in self.gates:
            await self.gates["rollback"].hold()
        await super().rollback()


class SlowFakeSync(FakeSync):
    def __init__(self, driver: Any, table: Table, gates: dict[str, Gate]) -> None:
        super().__init__(driver, table)
        self.gates = gates

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:  # type: ignore[override]  # the blocking twin of a coroutine
        if "commit" in self.gates:
            self.gates["commit"].hold_thread()
        return super().commit(ack, now)

    def rollback(self) -> None:  # type: ignore[override]  # the blocking twin of a coroutine
        if "rollback" in self.gates:
            self.gates["rollback"].hold_thread()
        super().rollback()


class SlowSqlMemory(SqlMemory):
    gates: dict[str, Gate]

    def sibling(self) -> "SlowSqlMemory":
        other = SlowSqlMemory()
        other.store, other.table, other.gates = self.store, self.table, self.gates
        return other

    def transaction(self, lease: Lease) -> Any:
        return SlowFake(self, self.table, self.gates)

    def transaction_sync(self, lease: Lease) -> Any:
        return SlowFakeSync(self, self.table, self.gates)


def slow(bench: Bench, end: str) -> tuple[Table, Gate]:
    """A store whose transactions are held at this end until the gate is opened."""
    driver = SlowSqlMemory()
    driver.table, gate = Table(), Gate()
    driver.gates = {end: gate}
    bench.driver = driver
    return driver.table, gate


def handler_of(colour: str, ends: Callable[[], object]) -> Callable[..., Any]:
    async def coroutine(ctx: JobContext) -> object:
        async with ctx.transaction() as writes:
            writes.append("row")
        return ends()

    def function(ctx: JobContext) -> object:
        with ctx.transaction() as writes:
            writes.append("row")
        return ends()

    return coroutine if colour == "coroutine" else function


def fails() -> None:
    raise Unrecoverable("no such account")


async def turns(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def occupied(worker: Worker) -> int:
    return worker.health().running


both_colours = pytest.mark.parametrize("colour", ["coroutine", "function"])


@both_colours
@pytest.mark.parametrize("how", ["stop", "grace over", "hurry", "timeout", "cancel of the run"])
@bench_test
async def test_a_commit_under_way_is_waited_for(bench: Bench, how: str, colour: str) -> None:
    table, gate = slow(bench, "commit")
    worker = bench.worker(shutdown_timeout=30, lease=300)
    worker.register("t", handler_of(colour, lambda: "ok"))
    await bench.enqueue(job("j", timeout=timedelta(seconds=60)))
    running = asyncio.create_task(worker.arun())
    await gate.reached.wait()
    if how == "timeout":
        bench.clock.advance(60)
    elif how == "hurry":
        worker.hurry()
    elif how == "cancel of the run":
        running.cancel()
    else:
        worker.stop()
        await bench.heard(WorkerStopping)
        bench.clock.advance(30 if how == "grace over" else 1)
    await turns()
    assert not running.done()
    assert await bench.state("j") == "inflight"
    gate.open()
    await bench.heard(JobSucceeded)
    worker.stop()
    await asyncio.gather(running, return_exceptions=True)
    assert (list(table), table.ends) == (["row"], 1)
    assert await bench.state("j") == "done"
    assert not bench.of(OutcomeRefused)
    assert not bench.of(JobFailed)
    assert type(bench.events[-1]) is WorkerStopped
    assert occupied(worker) == 0


@both_colours
@pytest.mark.parametrize("how", ["stop", "timeout"])
@heard_test
async def test_a_commit_that_never_ends_leaves_the_job_to_its_lease(
    bench: Bench, how: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "ENDING_GRACE_S", 0.01)

    table, gate = slow(bench, "commit")
    worker = bench.worker(lease=30, retry=Fixed(0))
    worker.register("t", handler_of(colour, lambda: "ok"))
    await bench.enqueue(job("j", timeout=timedelta(seconds=60)))
    running = asyncio.create_task(worker.arun())
    await gate.reached.wait()
    if how == "timeout":
        bench.clock.advance(60)
        await turns()
        assert not bench.of(OutcomeRefused)
        bench.clock.advance(5)
    else:
        worker.hurry()
        await running
    await bench.heard(OutcomeRefused)
    bench.clock.advance(30)
    await turns()
    if how == "stop":
        assert await bench.state("j") == "ready"  # nobody renews it any more
    else:
        await bench.heard(JobReserved, 2)
    gate.open()
    worker.hurry()
    await running
    while occupied(worker):
        await asyncio.sleep(0)
    done = await bench.state("j") == "done"
    assert list(table) == (["row"] if done else [])  # whichever it was: both or neither


@bench_test
async def test_a_coroutine_that_leaves_a_cancel_behind_is_committed(bench: Bench) -> None:
    table, gate = slow(bench, "commit")
    worker = bench.worker()

    def ends() -> str:
        [run] = worker._services.capacity.running  # type: ignore[union-attr]  # never None here
        assert run.task is not None
        run.task.cancel()
        return "ok"

    worker.register("t", handler_of("coroutine", ends))
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await gate.reached.wait()
        await turns()
        gate.open()
        await bench.heard(JobSucceeded)
        while occupied(worker):
            await asyncio.sleep(0)
    assert (list(table), table.ends) == (["row"], 1)
    assert await bench.state("j") == "done"


@both_colours
@pytest.mark.parametrize("how", ["stop", "timeout", "nothing"])
@bench_test
async def test_a_rollback_under_way_is_waited_for_and_the_handlers_own_error_stands(
    bench: Bench, how: str, colour: str
) -> None:
    table, gate = slow(bench, "rollback")
    worker = bench.worker(lease=300)
    worker.register("t", handler_of(colour, fails))
    await bench.enqueue(job("j", timeout=timedelta(seconds=60)))
    async with bench.running(worker):
        await gate.reached.wait()
        if how == "stop":
            worker.stop()
        elif how == "timeout":
            bench.clock.advance(60)
        await turns()
        assert not bench.of(JobDeadLettered)  # on SQLite nobody could write it before
        gate.open()
        await bench.heard(JobDeadLettered)
        while occupied(worker):
            await asyncio.sleep(0)
    assert (list(table), table.ends) == ([], 1)
    assert (await bench.info("j")).job.reason == "no such account"


@both_colours
@pytest.mark.parametrize("how", ["stop", "timeout"])
def test_a_rollback_that_never_ends_holds_no_outcome_up(how: str, colour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "ENDING_GRACE_S", 0.01)

    @bench_test
    async def scenario(bench: Bench) -> None:
        _, gate = slow(bench, "rollback")
        worker = bench.worker(lease=300)
        worker.register("t", handler_of(colour, fails))
        await bench.enqueue(job("j", timeout=timedelta(seconds=60)))
        running = asyncio.create_task(worker.arun())
        await gate.reached.wait()
        if how == "stop":
            worker.hurry()
        else:
            bench.clock.advance(60)
            await turns()
            bench.clock.advance(5)
        await bench.heard(JobDeadLettered)
        assert (await bench.info("j")).job.reason == "no such account"
        worker.hurry()
        await running
        gate.open()
        await turns()

    scenario()


@both_colours
@bench_test
async def test_a_transaction_that_was_asked_for_and_never_begun_changes_nothing(bench: Bench, colour: str) -> None:
    table, _ = slow(bench, "nothing")

    async def coroutine(ctx: JobContext) -> str:
        ctx.transaction()
        return "ok"

    def function(ctx: JobContext) -> str:
        ctx.transaction()
        return "ok"

    await bench.ran(coroutine if colour == "coroutine" else function, job("j"))
    assert (await bench.info("j")).job.result == b'"ok"'
    assert list(table) == []
    assert len(bench.of(JobSucceeded)) == 1


@bench_test
async def test_a_thread_that_middleware_gave_up_gets_no_transaction(bench: Bench) -> None:
    table, _ = slow(bench, "nothing")
    ended, told = threading.Event(), asyncio.Event()
    loop, errors = asyncio.get_running_loop(), list[str]()

    async def impatient(ctx: JobContext, call_next: Any) -> Any:
        call = asyncio.ensure_future(call_next(ctx))
        await turns()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        raise TimeoutError("gave up")

    def function(ctx: JobContext) -> None:
        assert ended.wait(60)
        try:
            ctx.transaction()
        except RuntimeError as error:
            errors.append(str(error))
        loop.call_soon_threadsafe(told.set)

    async with bench.serving(function, job("j"), middleware=[impatient], retry=Fixed(3600)) as worker:
        await bench.heard(JobRetried)
        while occupied(worker):
            await asyncio.sleep(0)
        ended.set()
        await told.wait()
    assert errors == ["ctx.transaction() was called after its job had ended"]
    assert table.ends == 0
