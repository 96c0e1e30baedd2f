"""An idle worker is there when a job becomes due, although the store sends no hint then."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.events import JobStarted, JobSucceeded, JobUnknown, StoreBack, StoreLost
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import OPERATIONS_QUEUE
from taskharbor.testing.clock import START, ManualClock
from tests.worker.workbench import Bench, bench_test, job

HOUR = 3600.0


class Asked(MemoryDriver):
    """Counts the calls of an idle worker."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.trouble: list[Exception] = []

    def sibling(self) -> "Asked":
        other = type(self)()
        other.store, other.calls, other.trouble = self.store, self.calls, self.trouble
        return other

    async def reserve(self, queues: Sequence[str], *given: Any, **more: Any) -> Any:
        if tuple(queues) != (OPERATIONS_QUEUE,):  # that is not about the worker's own jobs
            self.calls.append("reserve")
        return await super().reserve(queues, *given, **more)

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        self.calls.append("upcoming")
        if self.trouble:
            raise self.trouble.pop()
        return await super().upcoming(queues, now)


class Early(Asked):
    """Names a time that is too early."""

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        await super().upcoming(queues, now)
        return now + timedelta(milliseconds=1)


class Plain(Asked):
    upcoming = Driver.upcoming


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def idle(bench: Bench, driver: Asked | None = None, poll: float = HOUR) -> tuple[Any, Asked]:
    bench.driver = asked = driver or Asked()
    worker = bench.worker(poll_interval=poll, lease=4 * HOUR)

    async def handler() -> None:
        return None

    worker.register("t", handler)
    return worker, asked


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@bench_test
async def test_a_job_that_is_enqueued_for_later_while_the_worker_waits_starts_when_it_is_due(bench: Bench) -> None:
    worker, _ = idle(bench)
    async with bench.running(worker):
        await settled()
        await bench.enqueue(job("soon", run_at=at(5)))
        await settled()
        bench.clock.advance(4.999)
        await settled()
        assert not bench.of(JobStarted)
        bench.clock.advance(0.001)
        await bench.heard(JobSucceeded)


@bench_test
async def test_a_delayed_job_starts_when_it_is_due_not_at_the_poll_after_it(bench: Bench) -> None:
    worker, _ = idle(bench)
    await bench.enqueue(job("late", run_at=at(7)), job("soon", run_at=at(5)))
    async with bench.running(worker):
        await settled()
        bench.clock.advance(4.999)
        await settled()
        assert not bench.of(JobStarted)
        bench.clock.advance(0.001)
        assert [event.job.id for event in await bench.heard(JobStarted)] == ["soon"]
        await bench.heard(JobSucceeded)
        await settled()
        bench.clock.advance(2)
        assert [event.job.id for event in await bench.heard(JobStarted, 2)] == ["soon", "late"]


class Slow(Asked):
    """Its first reply to a reserve takes six seconds."""

    clock: ManualClock

    def sibling(self) -> "Slow":
        other = super().sibling()
        assert isinstance(other, Slow)
        other.clock = self.clock
        return other

    async def reserve(self, *given: Any, **more: Any) -> Any:
        is_first = "reserve" not in self.calls
        found = await super().reserve(*given, **more)
        if is_first:
            self.clock.advance(6)
        return found


@bench_test
async def test_a_job_that_becomes_due_while_a_reserve_is_under_way_starts_at_once(bench: Bench) -> None:
    driver = Slow()
    driver.clock = bench.clock
    worker, _ = idle(bench, driver)
    await bench.enqueue(job("j", run_at=at(5)))
    async with bench.running(worker):
        await settled()
        bench.clock.advance(0)
        assert [event.job.id for event in await bench.heard(JobStarted)] == ["j"]


@bench_test
async def test_the_job_of_a_dead_worker_is_taken_over_when_its_lease_ends(bench: Bench) -> None:
    worker, _ = idle(bench)
    await bench.enqueue(job("j"))
    await bench.driver.reserve(["default"], bench.clock.now(), timedelta(seconds=30), 1, "dead")
    async with bench.running(worker):
        await settled()
        bench.clock.advance(30)
        await bench.heard(JobStarted)


@bench_test
async def test_an_idle_round_asks_once_and_jobs_that_flow_never(bench: Bench) -> None:
    worker, asked = idle(bench)
    await bench.enqueue(*[job(f"j{number}") for number in range(200)])
    async with bench.running(worker):
        await bench.heard(JobSucceeded, 200)
        await settled()
        assert asked.calls.count("upcoming") == 1, "only the round that found nothing"
        assert asked.calls[-2:] == ["reserve", "upcoming"]


class Stopping(Asked):
    """Stops the worker while a reserve is under way."""

    stop: Callable[[], object]

    def sibling(self) -> "Stopping":
        other = super().sibling()
        assert isinstance(other, Stopping)
        other.stop = lambda: self.stop()
        return other

    async def reserve(self, *given: Any, **more: Any) -> Any:
        self.stop()
        await settled()
        return await super().reserve(*given, **more)


@bench_test
async def test_a_worker_that_stops_does_not_ask(bench: Bench) -> None:
    driver = Stopping()
    worker, _ = idle(bench, driver)
    driver.stop = worker.stop
    async with bench.running(worker):
        await settled()
    assert driver.calls == ["reserve"]


@bench_test
async def test_a_driver_without_the_feature_is_polled(bench: Bench) -> None:
    worker, asked = idle(bench, Plain())
    await bench.enqueue(job("j", run_at=at(5)))
    async with bench.running(worker):
        await settled()
        bench.clock.advance(5)
        await settled()
        assert asked.calls == ["reserve"]


@bench_test
async def test_wake_ups_in_vain_come_at_growing_intervals(bench: Bench) -> None:
    """A store that names a time too early, again and again, must not keep its workers busy."""
    worker, asked = idle(bench, Early())
    async with bench.running(worker):
        for _ in range(1000):
            await settled()
            bench.clock.advance(0.001)
        await settled()
        # After 0.001, 0.05, 0.1, 0.2 and 0.4 s: five wake-ups in the first second.
        assert asked.calls == ["reserve", "upcoming"] * 6
        await bench.enqueue(job("j"))
        await bench.heard(JobSucceeded)
        await settled()
        assert len(asked.calls) == 15  # one for the job, one that finds nothing more
        bench.clock.advance(0.001)
        await settled()
        assert len(asked.calls) == 17, "a job was found: the next time counts again"


@bench_test
async def test_a_time_after_the_next_poll_needs_no_timer(bench: Bench) -> None:
    worker, _ = idle(bench, poll=4)
    await bench.enqueue(job("j", run_at=at(5)))
    async with bench.running(worker):
        await settled()
        assert bench.clock.sleepers == 4  # the heart, the upkeep, the operations and the scheduler


@bench_test
async def test_a_store_that_cannot_answer_is_polled_and_reported(bench: Bench) -> None:
    worker, asked = idle(bench)
    asked.trouble = [BackendUnavailable("away")]
    async with bench.running(worker):
        [lost] = await bench.heard(StoreLost)
        assert lost.doing == "upcoming"
        await bench.enqueue(job("j"))
        await bench.heard(JobSucceeded)
        await bench.heard(StoreBack)


@bench_test
async def test_a_worker_is_late_for_a_job_that_it_cannot_run(bench: Bench) -> None:
    """Or it would be the first, each time, and the worker that can run the job might never get it."""
    worker, _ = idle(bench)
    await bench.enqueue(job("j", "unknown"))
    async with bench.running(worker):
        await bench.heard(JobUnknown)
        await settled()
        due = (await bench.info("j")).job.run_at
        assert due is not None
        await bench.enqueue(job("now"))  # brings another round that finds nothing more
        await bench.heard(JobSucceeded)
        await settled()
        bench.clock.advance(due - bench.clock.now())
        await settled()
        assert len(bench.of(JobUnknown)) == 1
