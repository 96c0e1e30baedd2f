"""A record that an open transaction has locked: the store says "not now" for that job, and only that job waits."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from taskharbor import JobContext
from taskharbor.drivers import BackendUnavailable, Driver, Lease, Outcome, TaskHarborError, WrappedDriver
from taskharbor.events import JobStarted, JobSucceeded, LeaseLost, OutcomeRefused, StoreLost
from taskharbor.worker import settler
from tests.worker.workbench import Bench, bench_test, job

NOT_NOW = BackendUnavailable("locked by another transaction")


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "MAX_RETRY_DELAY_S", 0.001)


class Locking(WrappedDriver):
    """A driver, and the ids of jobs that are locked in its store; shared with its siblings."""

    def __init__(self, inner: Driver, locked: set[str], asked: list[str]) -> None:
        super().__init__(inner)
        self._locked, self._asked = locked, asked

    def sibling(self) -> Driver:
        return Locking(self.inner.sibling(), self._locked, self._asked)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        free = [each for each in outcomes if each.lease.job_id not in self._locked]
        self._asked += [each.lease.job_id for each in outcomes if each.lease.job_id in self._locked]
        answers = iter(await self.inner.settle(free, now))
        return [next(answers) if each in free else NOT_NOW for each in outcomes]

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Any = None
    ) -> list[Lease | TaskHarborError]:
        free = [each for each in leases if each.job_id not in self._locked]
        self._asked += [each.job_id for each in leases if each.job_id in self._locked]
        answers = iter(await self.inner.extend(free, now, lease_for, notes))
        return [next(answers) if each in free else NOT_NOW for each in leases]


def locked(bench: Bench, *ids: str) -> tuple[set[str], list[str]]:
    """Lock these jobs in the bench's store; the set to unlock them, and what was asked about them since."""
    found, asked = set(ids), list[str]()
    bench.driver = cast(Driver, Locking(bench.driver, found, asked))
    return found, asked


async def asked_again(asked: list[str], times: int) -> None:
    aim = len(asked) + times
    while len(asked) < aim:
        await asyncio.sleep(0)


@bench_test
async def test_only_the_outcome_of_a_locked_job_waits(bench: Bench) -> None:
    held, asked = locked(bench, "a")
    worker = bench.worker(poll_interval=0.01)
    worker.register("t", lambda: None)
    await bench.enqueue(job("a"), job("b"))
    async with bench.running(worker) as task:
        await bench.heard(JobSucceeded)
        await asked_again(asked, 2)
        await bench.enqueue(*(job(f"later {number}") for number in range(50)))
        await bench.heard(JobSucceeded, 51)
        assert await bench.state("a") == "inflight"
        worker.stop()
        await asked_again(asked, 2)  # it is the last to go
        held.clear()
        await task
    assert [event.job.id for event in bench.of(JobSucceeded)][-1] == "a"
    assert not bench.of(OutcomeRefused) + bench.of(StoreLost)
    assert (await bench.info("a")).job.deliveries == 1


@bench_test
async def test_an_outcome_that_waits_too_long_is_refused_when_its_lease_ends(bench: Bench) -> None:
    held, _ = locked(bench, "a")
    async with bench.serving(lambda: None, job("a"), lease=30, heartbeat=10):
        while not bench.of(OutcomeRefused):
            bench.clock.advance(10)
            await asyncio.sleep(0)
        held.clear()
        await bench.heard(JobSucceeded)
    assert (await bench.info("a")).job.deliveries == 2


def test_an_outcome_that_keeps_waiting_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        held, asked = locked(bench, "a")
        worker = bench.worker()
        worker.register("t", lambda: None)
        await bench.enqueue(job("a"))
        caplog.clear()
        async with bench.running(worker):
            await asked_again(asked, 8)
            held.clear()
            await bench.heard(JobSucceeded)
        told = [record.getMessage() for record in caplog.records if "waits" in record.getMessage()]
        assert told == ["the outcome of job a waits: locked by another transaction"]

    with caplog.at_level(logging.WARNING, "taskharbor.worker"):
        scenario()


@bench_test
async def test_a_lease_that_cannot_be_extended_now_is_not_lost(bench: Bench) -> None:
    """And is tried again before its time."""
    held, asked = locked(bench, "a")
    go = asyncio.Event()

    async def handler(ctx: JobContext) -> None:
        await go.wait()

    async with bench.serving(handler, job("a"), job("b"), lease=30, heartbeat=10):
        await bench.heard(JobStarted, 2)
        bench.clock.advance(10)
        await bench.extended("b", to=bench.clock.now() + timedelta(seconds=30))
        assert asked == ["a"]
        held.clear()
        while (await bench.info("a")).lease_expires_at != bench.clock.now() + timedelta(seconds=30):
            bench.clock.advance(0.1)
            await asyncio.sleep(0)
        go.set()
        await bench.heard(JobSucceeded, 2)
    assert not bench.of(LeaseLost) + bench.of(StoreLost)
