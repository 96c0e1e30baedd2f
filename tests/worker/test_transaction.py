"""ctx.transaction(): the handler's writes and the job's ack, together or not at all. The store here is a fake."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers import Ack, BackendUnavailable, Lease, TaskHarborError
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import Event, JobDeadLettered, JobRetried, JobStarted, JobSucceeded, OutcomeRefused
from taskharbor.policy.retry import Fixed
from taskharbor.testing import Faults
from tests.worker.test_renewals import lose_lease, told
from tests.worker.workbench import Bench, bench_test, job


class Table(list[str]):
    """What was committed, how often a transaction was ended, and why it was ended under its handler."""

    ends = 0
    fail_commit = False
    aborted = ""


class Fake:
    """Both colours of a transaction: writes wait in it until it commits."""

    def __init__(self, driver: MemoryDriver, table: Table) -> None:
        self.driver, self.table = driver, table
        self.writes: list[str] = []

    async def __aenter__(self) -> list[str]:
        return self.writes

    async def __aexit__(self, *raised: object) -> None:
        return None

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        self.table.ends += 1
        if self.table.fail_commit:
            raise BackendUnavailable("gone while it committed")
        [refused] = await self.driver.settle([ack], now)
        if refused is None:
            self.table.extend(self.writes)
        return refused

    async def rollback(self) -> None:
        self.table.ends += 1

    async def abort(self, why: str) -> None:
        self.writes.clear()
        self.table.aborted = why


class FakeSync(Fake):
    def __enter__(self) -> list[str]:
        return self.writes

    def __exit__(self, *raised: object) -> None:
        return None

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:  # type: ignore[override]  # the blocking twin of a coroutine
        return asyncio.run(super().commit(ack, now))

    def rollback(self) -> None:  # type: ignore[override]  # the blocking twin of a coroutine
        self.table.ends += 1

    def abort(self, why: str) -> None:  # type: ignore[override]  # the blocking twin of a coroutine
        asyncio.run(super().abort(why))


class SqlMemory(MemoryDriver):
    table: Table

    def sibling(self) -> "SqlMemory":
        other = SqlMemory()
        other.store, other.table = self.store, self.table
        return other

    def transaction(self, lease: Lease) -> Any:
        return Fake(self, self.table)

    def transaction_sync(self, lease: Lease) -> Any:
        return FakeSync(self, self.table)


def on_sql(bench: Bench) -> Table:
    driver = SqlMemory()
    driver.table = Table()
    bench.driver = driver
    return driver.table


@pytest.mark.parametrize("colour", ["coroutine", "function"])
@pytest.mark.parametrize("ending", ["returns", "raises", "huge", "lost", "commit fails"])
@bench_test
async def test_writes_and_ack_are_committed_together_or_not_at_all(bench: Bench, colour: str, ending: str) -> None:
    table = on_sql(bench)
    table.fail_commit = ending == "commit fails"

    def end() -> str:
        if ending == "raises":
            raise ValueError
        return "x" * 100_000 if ending == "huge" else "ok"

    async def coroutine(ctx: JobContext) -> str:
        async with ctx.transaction() as writes:
            writes.append("row")
        if ending == "lost":
            await bench.driver.delete(["j"])
        return end()

    def function(ctx: JobContext) -> str:
        with ctx.transaction() as writes:
            writes.append("row")
        if ending == "lost":
            asyncio.run(bench.driver.delete(["j"]))
        return end()

    async with bench.serving(coroutine if colour == "coroutine" else function, job("j"), retry=Fixed(3600)):
        heard: dict[str, type[Event]] = {"returns": JobSucceeded, "raises": JobRetried, "huge": JobDeadLettered}
        await bench.heard(heard.get(ending, OutcomeRefused))
    assert table == (["row"] if ending == "returns" else [])
    assert table.ends == 1
    if ending == "lost":
        return
    info = await bench.info("j")
    assert info.state == {"returns": "done", "raises": "scheduled", "huge": "dlq"}.get(ending, "inflight")
    if ending == "returns":
        assert info.job.result == b'"ok"'


@bench_test
async def test_a_commit_that_is_refused_because_no_renewal_got_through_is_no_crash(bench: Bench) -> None:
    """Like any other lease that ended so, it is named in the heartbeats (tests/worker/test_renewals.py)."""
    table, faults = on_sql(bench), Faults()
    bench.driver = faults.wrap(bench.driver)

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction() as writes:
            writes.append("row")
        await lose_lease(bench, faults)

    async with bench.serving(handler, job("j"), lease=30, heartbeat=10):
        await bench.heard(OutcomeRefused)
        await told(bench, 1, ())
    assert table == []


@bench_test
async def test_a_timeout_rolls_back(bench: Bench) -> None:
    table = on_sql(bench)
    worker = bench.worker(retry=Fixed(3600))

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction() as writes:
            writes.append("row")
            await asyncio.Event().wait()

    worker.register("t", handler, timeout=5)
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        bench.clock.advance(5)
        await bench.heard(JobRetried)
    assert (table, table.ends) == ([], 1)


@bench_test
async def test_a_job_has_one_transaction(bench: Bench) -> None:
    on_sql(bench)

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction():
            with pytest.raises(RuntimeError, match="one transaction"):
                ctx.transaction()

    await bench.ran(handler, job("j"), retry=Fixed(3600))
    assert await bench.state("j") == "done"
