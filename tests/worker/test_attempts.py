"""Every execution of a job is kept with it, however it ended."""

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskharbor import Cancel, JobContext, Snooze, Unrecoverable
from taskharbor.events import JobFailed, JobStarted
from taskharbor.model.executions import Attempt, known_executions
from taskharbor.model.job import JobRecord
from taskharbor.policy.retry import Fixed
from taskharbor.tasks.flow_metadata import BIND_KEY, write_bind
from taskharbor.tasks.workflow import Spawned, Workflow
from taskharbor.testing.clock import START
from tests.worker import process_handlers
from tests.worker.test_transaction import on_sql
from tests.worker.workbench import Bench, bench_test, heard_test, job

LEASE = timedelta(seconds=30)


async def attempts(bench: Bench, id: str = "j") -> list[Attempt]:
    return known_executions(await bench.info(id))


async def kinds(bench: Bench, id: str = "j") -> list[tuple[int, str]]:
    return [(each.number, each.kind.value) for each in await attempts(bench, id)]


async def lose(bench: Bench, worker: str = "dead") -> datetime:
    """A worker takes what there is and dies; return when its leases end."""
    taken = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 10, worker)
    bench.clock.advance(60)
    return taken[0].lease.expires_at


def seconds(number: float) -> datetime:
    return START + timedelta(seconds=number)


ENDINGS: dict[str, tuple[str, type[BaseException] | Exception]] = {
    "failed": ("failed", ValueError("no")),
    "dead": ("failed", Unrecoverable("no")),
    "snoozed": ("snoozed", Snooze(3)),
    "cancelled": ("cancelled", Cancel("no")),
}


@pytest.mark.parametrize("how", ENDINGS)
@bench_test
async def test_an_execution_is_kept_with_its_times_its_worker_and_its_error(bench: Bench, how: str) -> None:
    kind, error = ENDINGS[how]
    worker = bench.worker(retry=Fixed(60))

    async def handler() -> None:
        bench.clock.advance(2)
        raise error

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    bench.clock.advance(1)
    await worker.arun(until_empty=True)
    [attempt] = await attempts(bench)
    assert (attempt.number, attempt.kind, attempt.worker) == (1, kind, worker.name)
    assert (attempt.began_at, attempt.ended_at) == (seconds(1), seconds(3))
    stored = (await bench.info("j")).job
    if kind == "failed":
        assert attempt.error == stored.last_error
        assert attempt.error_class == stored.error_class == type(error).__name__.replace("Unr", "taskharbor.Unr")
        assert attempt.fingerprint == stored.fingerprint != ""
        assert bench.of(JobFailed)[0].error_class == attempt.error_class
        assert bench.of(JobFailed)[0].fingerprint == attempt.fingerprint
    else:
        assert (attempt.error_class, attempt.fingerprint) == ("", "")


@bench_test
async def test_the_executions_of_a_job_come_in_order(bench: Bench) -> None:
    turns: list[Any] = [ValueError(), Snooze(0), KeyError("k"), None]

    async def handler() -> None:
        if (error := turns.pop(0)) is not None:
            raise error

    await bench.ran(handler, job("j"), retry=Fixed(0))
    assert await kinds(bench) == [(1, "failed"), (2, "snoozed"), (3, "failed"), (4, "done")]
    assert [each.error_class for each in await attempts(bench)] == ["ValueError", "", "KeyError", ""]


@bench_test
async def test_a_timeout_is_kept_as_one(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(3600))

    async def handler() -> None:
        await asyncio.Event().wait()

    worker.register("t", handler, timeout=5)
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        while not bench.of(JobFailed):
            bench.clock.advance(1)
            await asyncio.sleep(0)
    [attempt] = await attempts(bench)
    assert (attempt.kind, attempt.error_class) == ("timeout", "TimeoutError")


@bench_test
async def test_a_timeout_error_of_the_handlers_own_is_a_failure(bench: Bench) -> None:
    async def handler() -> None:
        raise TimeoutError

    await bench.ran(handler, job("j"), retry=Fixed(3600))
    assert await kinds(bench) == [(1, "failed")]


@pytest.mark.parametrize("fails", [False, True])
@bench_test
async def test_a_lost_execution_is_written_by_the_next_one(bench: Bench, fails: bool) -> None:
    worker = bench.worker(retry=Fixed(60))

    async def handler() -> None:
        if fails:
            raise ValueError

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    ended = await lose(bench)
    await worker.arun(until_empty=True)
    lost, newest = await attempts(bench)
    assert (lost.number, lost.kind, lost.worker) == (1, "lost", "dead")
    assert (lost.began_at, lost.ended_at) == (START, ended)
    assert (newest.number, newest.kind) == (2, "failed" if fails else "done")


@bench_test
async def test_a_job_that_is_done_at_once_has_no_trail(bench: Bench) -> None:
    await bench.ran(lambda: 1, job("j"))
    assert (await bench.info("j")).job.trail == b""
    assert await kinds(bench) == [(1, "done")]


@bench_test
async def test_a_job_that_crashed_its_workers_shows_the_last_of_them(bench: Bench) -> None:
    worker = bench.worker(max_lost=3)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    for number in range(3):
        await lose(bench, f"dead-{number}")
    await worker.arun(until_empty=True)
    assert await kinds(bench) == [(3, "lost"), (4, "failed")]  # nothing was left to write the first two
    lost, newest = await attempts(bench)
    assert lost.worker == "dead-2"
    assert (newest.error_class, newest.error) == ("taskharbor.Crashed", "crashed 3 times")


@bench_test
async def test_what_cannot_run_here_is_kept_as_given_back(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("other", lambda: None)
    await bench.enqueue(job("j"))
    await worker.arun(until_empty=True)
    [attempt] = await attempts(bench)
    assert (attempt.kind, attempt.error) == ("given_back", "unknown type")


@pytest.mark.parametrize("colour", ["coroutine", "function"])
@bench_test
async def test_what_a_stop_interrupts_is_kept_as_given_back(bench: Bench, colour: str) -> None:
    worker, gate = bench.worker(), threading.Event()

    async def coroutine() -> None:
        await asyncio.Event().wait()

    def function() -> None:
        gate.wait(30)

    worker.register("t", coroutine if colour == "coroutine" else function)
    await bench.enqueue(job("j"))
    await bench.run_until(JobStarted, worker, worker.hurry)
    gate.set()
    [attempt] = await attempts(bench)
    assert (attempt.kind, attempt.error) == ("given_back", "shutdown")


class NotStorable(Workflow):
    def _compile(self, parent: JobRecord, now: datetime) -> Spawned:
        bad = JobRecord(id="x", type="t", depends_on=("nowhere",))
        return Spawned((bad,), "x")


@bench_test
async def test_a_workflow_that_cannot_be_stored_is_kept_as_a_failure(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", lambda: NotStorable())
    await bench.enqueue(job("j"))
    await lose(bench)
    await worker.arun(until_empty=True)
    assert await kinds(bench) == [(1, "lost"), (2, "failed")]
    assert (await attempts(bench))[1].error_class == "taskharbor.Refusal"


@pytest.mark.parametrize("fails", [False, True])
@bench_test
async def test_an_ack_that_is_committed_with_a_transaction_has_its_trail(bench: Bench, fails: bool) -> None:
    on_sql(bench)
    worker = bench.worker(retry=Fixed(60))

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction():
            if fails:
                raise ValueError

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    await lose(bench)
    await worker.arun(until_empty=True)
    assert await kinds(bench) == [(1, "lost"), (2, "failed" if fails else "done")]


@heard_test
async def test_an_error_of_a_child_process_has_the_class_and_the_place_that_it_had_there(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(60))
    worker.register("local", process_handlers.raises, process=True)
    worker.register("rejects", process_handlers.rejects, process=True)
    await bench.enqueue(job("j", "local", payload=b'{"kind": "local"}'), job("r", "rejects"))
    await worker.arun(until_empty=True)
    [local] = await attempts(bench)
    [rejected] = await attempts(bench, "r")
    here = "tests.worker.process_handlers"
    assert local.error_class == f"{here}.raises.<locals>.Local"
    assert rejected.error_class == f"{here}.Rejected"
    assert len({local.fingerprint, rejected.fingerprint}) == 2


@bench_test
async def test_a_loss_is_kept_also_by_a_job_that_waited_for_results(bench: Bench) -> None:
    worker = bench.worker(retry=Fixed(60))
    worker.register("t", lambda given: None)
    marked = {BIND_KEY: write_bind("given", None)}
    await bench.enqueue(job("first"), job("j", metadata=marked, depends_on=("first",)))
    [first] = await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 10, "w")
    await bench.driver.ack(first.lease, bench.clock.now(), b"1")
    await lose(bench)
    await worker.arun(until_empty=True)
    assert await kinds(bench) == [(1, "lost"), (2, "done")]
