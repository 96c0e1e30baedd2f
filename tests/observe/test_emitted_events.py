"""The events of every path that a job can take: which, in which order, with which numbers."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import Harbor, JobContext, RetryLater, Snooze
from taskharbor.drivers import Ack
from taskharbor.events import (
    Event,
    JobCancelled,
    JobDeadLettered,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobReserved,
    JobRetried,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    StoreBack,
    StoreLost,
)
from taskharbor.flow import chain
from taskharbor.model.events import Observers
from taskharbor.policy.retry import Fixed
from taskharbor.testing import ManualClock
from taskharbor.worker.outage import Outage
from tests.worker.test_outcomes import Expansion
from tests.worker.test_transaction import on_sql
from tests.worker.workbench import Bench, heard_test, job

LEASE = timedelta(seconds=30)


def told(bench: Bench, id: str = "j") -> list[str]:
    """The names of the events of a job."""
    return [type(event).__name__ for event in bench.events if isinstance(event, JobEvent) and event.job.id == id]


def of(bench: Bench, kind: type[Event]) -> Any:
    (event,) = bench.of(kind)
    return event


@heard_test
async def test_a_job_that_fails_twice_and_then_succeeds(bench: Bench) -> None:
    def handler(ctx: JobContext) -> None:
        if ctx.job.attempts < 2:
            raise RetryLater(0) if ctx.job.attempts else ValueError

    await bench.ran(handler, job("j"), retry=Fixed(0))
    attempt = ["JobReserved", "JobStarted"]
    failed = [*attempt, "JobFailed", "JobRetried"]
    assert told(bench) == [*failed, *failed, *attempt, "JobSucceeded"]
    assert [event.attempts for event in bench.of(JobRetried)] == [1, 2]
    for kind in (JobReserved, JobStarted):
        assert [event.job.attempts for event in bench.of(kind)] == [0, 1, 2]
    assert [event.job.attempts for event in bench.of(JobFailed)] == [0, 1]
    assert of(bench, JobSucceeded).job.attempts == 2


@heard_test
async def test_a_snooze_is_not_a_failure_and_spends_no_attempt(bench: Bench) -> None:
    def handler(ctx: JobContext) -> None:
        if ctx.job.deliveries == 1:
            raise Snooze(0)

    await bench.ran(handler, job("j"))
    assert told(bench) == ["JobReserved", "JobStarted", "JobSnoozed", "JobReserved", "JobStarted", "JobSucceeded"]
    assert of(bench, JobSnoozed).job.attempts == of(bench, JobSucceeded).job.attempts == 0


def test_events_without_an_observer_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[str] = set()
    emit = Observers.emit

    def noting(self: Observers, event: Event) -> None:
        made.add(type(event).__name__)
        emit(self, event)

    monkeypatch.setattr(Observers, "emit", noting)
    logging.getLogger("taskharbor").setLevel(logging.WARNING)
    harbor = Harbor("memory://", observers=[Deaf()])

    @harbor.task
    async def work() -> Any:
        return None

    @harbor.task
    def split() -> Any:
        return chain(work.s())

    try:
        with harbor:
            harbor.enqueue_many([work.s(), work.s(), split.s()])
            harbor.worker().run(until_empty=True)
    finally:
        logging.getLogger("taskharbor").setLevel(logging.NOTSET)
    assert made == {"WorkerStarted", "WorkerStopping", "WorkerStopped"}  # once for each worker


class Deaf:
    def wants(self, event_type: type[Event]) -> bool:
        return False

    def __call__(self, event: Event) -> None:
        raise AssertionError(event)


# What a job brings into being


@pytest.mark.parametrize("store", ["plain", "transaction"])
@heard_test
async def test_jobs_stored_by_an_outcome_are_reported_as_enqueued(bench: Bench, store: str) -> None:
    if store == "transaction":
        on_sql(bench)
    worker = bench.worker()

    async def split(ctx: JobContext) -> Any:
        if store == "transaction":
            async with ctx.transaction():
                pass
        return Expansion(job("s1"), job("s2", depends_on=("s1",)), handover="s2")

    worker.register("split", split)
    worker.register("t", lambda: None)
    await bench.enqueue(job("p", "split"))
    await worker.arun(until_empty=True)
    assert told(bench, "p") == ["JobReserved", "JobStarted", "JobSucceeded"]
    for id in ("s1", "s2"):
        assert told(bench, id) == ["JobEnqueued", "JobReserved", "JobStarted", "JobSucceeded"]
    assert {(event.worker, event.existed) for event in bench.of(JobEnqueued)} == {(worker.name, False)}


@pytest.mark.parametrize("store", ["plain", "transaction"])
@heard_test
async def test_a_workflow_that_the_store_refuses_is_a_failure_like_any_other(bench: Bench, store: str) -> None:
    table = on_sql(bench) if store == "transaction" else []
    worker = bench.worker()

    async def split(ctx: JobContext) -> Any:
        if store == "transaction":
            async with ctx.transaction() as writes:
                writes.append("row")
        return Expansion(job("s1", depends_on=("nobody",)), handover="s1")

    worker.register("split", split)
    await bench.enqueue(job("j", "split"))
    await worker.arun(until_empty=True)
    assert told(bench) == ["JobReserved", "JobStarted", "JobFailed", "JobDeadLettered"]
    assert "its workflow cannot be stored" in of(bench, JobDeadLettered).reason
    assert "its workflow cannot be stored" in str(of(bench, JobFailed).error)
    assert await bench.state("j") == "dlq"
    assert table == []


def test_an_outage_lasts_from_the_first_failure_to_the_last_recovery() -> None:
    clock, heard = ManualClock(), list[Event]()
    outage = Outage("w", clock, Observers([heard.append]))
    outage.failed("reserve", OSError())
    clock.advance(5)
    outage.failed("extend", OSError())
    clock.advance(5)
    outage.answered("reserve", "wait")
    assert outage.seconds == 10
    clock.advance(10)
    outage.answered("extend")
    outage.answered("extend")
    assert outage.seconds == 0
    assert [type(event) for event in heard] == [StoreLost, StoreBack]
    assert heard[1] == StoreBack("w", 20)


# Lost, or taken away


def interrupted(bench: Bench, reasons: list[str | None]) -> Any:
    async def handler(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancelled.reason)

    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", handler)
    return worker


@heard_test
async def test_a_job_finished_by_another_worker_is_a_lost_lease_not_a_cancel(bench: Bench) -> None:
    reasons: list[str | None] = []
    worker = interrupted(bench, reasons)
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        later = bench.clock.now() + LEASE
        [taken] = await bench.driver.reserve(["default"], later, LEASE, 1, "other")
        assert await bench.driver.settle([Ack(taken.lease)], later) == [None]
        bench.clock.advance(40)  # no beat came in time
        await bench.heard(LeaseLost)
    assert bench.of(JobCancelled) == []
    assert reasons == ["lease lost"]


@heard_test
async def test_a_running_job_that_is_cancelled_is_reported_as_cancelled(bench: Bench) -> None:
    reasons: list[str | None] = []
    worker = interrupted(bench, reasons)
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        await bench.driver.cancel(["j"], bench.clock.now())
        bench.clock.advance(10)
        await bench.heard(JobCancelled)
    assert bench.of(LeaseLost) == []
    assert reasons == ["cancelled"]


@heard_test
async def test_a_job_that_crashed_too_often_is_dead_without_a_start(bench: Bench) -> None:
    worker = bench.worker(max_lost=1)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "gone")
    bench.clock.advance(31)
    await worker.arun(until_empty=True)
    assert told(bench) == ["JobReserved", "JobDeadLettered"]
    assert of(bench, JobDeadLettered).reason == "crashed 1 times"
