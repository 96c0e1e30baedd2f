"""Leases that cannot be renewed: no jobs are taken meanwhile, and a lease that ended so is no crash of its job."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from taskharbor import Harbor
from taskharbor.drivers import WORKER_SILENCE, BackendUnavailable, Driver, JobInfo, WrappedDriver
from taskharbor.events import JobCancelled, JobDeadLettered, JobStarted, JobSucceeded, LeaseLost, StoreLost
from taskharbor.model.executions import Attempt, AttemptKind, known_executions, write_trail
from taskharbor.model.job import EPOCH, JobRecord, WorkerInfo
from taskharbor.policy.losses import crashes, cut_off_deliveries, most_losses
from taskharbor.policy.trail import CUT_OFF
from taskharbor.testing import Faults, ManualClock, drain
from taskharbor.worker import Worker
from taskharbor.worker.heart import LoopWatch, ThreadHeart
from taskharbor.worker.outage import RenewalGate
from tests.worker.workbench import Bench, bench_test, job, parts_of, waits_for

LEASE = timedelta(seconds=30)


class Scarce(WrappedDriver):
    """A store with few connections: each driver takes one when it opens. `failing`: drivers whose extends fail."""

    def __init__(self, inner: Driver, connections: int, shared: "Scarce | None" = None) -> None:
        super().__init__(inner)
        self._shared = shared or self
        self.connections = connections
        self.refused = self.reserves = 0
        self.opened: list[Scarce] = []
        self.failing: list[Scarce] = []

    def sibling(self) -> Driver:
        return Scarce(self.inner.sibling(), 0, self._shared)

    async def open(self) -> None:
        if len(self._shared.opened) >= self._shared.connections:
            self._shared.refused += 1
            raise BackendUnavailable("too many connections")
        await self.inner.open()
        self._shared.opened.append(self)

    async def reserve(self, *args: Any) -> Any:
        self._shared.reserves += 1
        return await self.inner.reserve(*args)

    async def extend(self, *args: Any) -> Any:
        if self in self._shared.failing:
            raise BackendUnavailable("its connection is gone")
        return await self.inner.extend(*args)


class Asked(WrappedDriver):
    """Notes how many leases each renewal named."""

    def __init__(self, inner: Driver, renewals: list[int] | None = None) -> None:
        super().__init__(inner)
        self.renewals: list[int] = [] if renewals is None else renewals

    def sibling(self) -> Driver:
        return Asked(self.inner.sibling(), self.renewals)

    async def extend(self, leases: Any, *args: Any) -> Any:
        self.renewals.append(len(leases))
        return await self.inner.extend(leases, *args)


class Unhurried(WrappedDriver):
    """Knows which calls are under way: a test lets no time pass meanwhile, so a slow store does not end a lease."""

    def __init__(self, inner: Driver, calls: list[str]) -> None:
        super().__init__(inner)
        self._calls = calls

    def sibling(self) -> Driver:
        return Unhurried(self.inner.sibling(), self._calls)

    async def around(self, verb: str, call: Any, args: Any) -> Any:
        if verb not in ("reserve", "extend", "settle"):
            return await call()
        self._calls.append(verb)
        try:
            return await call()
        finally:
            self._calls.remove(verb)


class Late(Asked):
    """Its first renewal takes effect, and returns only when the renewed lease is over too, as behind a locked file."""

    clock: Any = None

    def sibling(self) -> Driver:
        late = Late(self.inner.sibling(), self.renewals)
        late.clock = self.clock
        return cast(Driver, late)

    async def extend(self, leases: Any, *args: Any) -> Any:
        renewed = await super().extend(leases, *args)
        if len(self.renewals) == 1:
            self.clock.advance(60)
        return renewed


# Taking jobs -------------------------------------------------------------------------------------------------


def test_no_job_is_taken_before_the_heart_has_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    @bench_test
    async def scenario(bench: Bench) -> None:
        caplog.clear()
        store = Scarce(bench.driver, connections=1)
        bench.driver = cast(Driver, store)
        worker = bench.worker(heart="thread")
        worker.register("t", lambda: None)
        await bench.enqueue(job("j"))
        async with bench.running(worker):
            while store.refused < 3:
                await asyncio.sleep(0.001)
            assert store.reserves == 0
            assert not worker.health().ok
            store.connections = 2
            await bench.heard(JobSucceeded)
        [lost] = bench.of(StoreLost)
        assert lost.doing == "open for the heart"
        told = [record.getMessage() for record in caplog.records if record.name == "taskharbor.worker"]
        assert [line.partition(" takes ")[2] for line in told] == [
            "no jobs: leases cannot be renewed, the store gave no connection",
            "jobs again: leases can be renewed",
        ]

    with caplog.at_level(logging.INFO, "taskharbor.worker"):
        scenario()


@bench_test
async def test_a_stop_does_not_wait_for_the_hearts_connection(bench: Bench) -> None:
    store = Scarce(bench.driver, connections=1)
    bench.driver = cast(Driver, store)
    worker = bench.worker(heart="thread")
    async with bench.running(worker):
        while store.refused < 1:
            await asyncio.sleep(0.001)


@bench_test
async def test_nothing_new_is_taken_while_renewals_fail(bench: Bench) -> None:
    faults, done = Faults(), asyncio.Event()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(lease=30, heartbeat=10, concurrency=2)
    worker.register("t", waits_for(done))
    await bench.enqueue(job("a"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        faults.fail("extend", times=1000)
        bench.clock.advance(10)
        await bench.heard(StoreLost)
        await bench.enqueue(job("b"))
        for _ in range(200):
            await asyncio.sleep(0)
        assert await bench.state("b") == "ready"
        faults._failures.clear()
        while await bench.state("b") == "ready":
            bench.clock.advance(0.1)
            await asyncio.sleep(0.001)
        done.set()
        await bench.heard(JobSucceeded, 2)
    assert (await bench.info("a")).job.deliveries == 1


@bench_test
async def test_a_renewal_on_which_the_driver_itself_fails_stops_no_other_job(bench: Bench) -> None:
    """The store was reached: over a record that another program has damaged, no worker waits for ever."""
    faults, done = Faults(), asyncio.Event()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(lease=30, heartbeat=10, concurrency=2)
    worker.register("t", waits_for(done))
    worker.register("quick", lambda: None)
    await bench.enqueue(job("a"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        faults.fail("extend", times=1000, error=TypeError("a damaged record"))
        bench.clock.advance(10)
        await bench.heard(StoreLost)
        await bench.enqueue(job("b", "quick"))
        await bench.heard(JobSucceeded)
        done.set()


@bench_test
async def test_a_worker_that_holds_nothing_takes_jobs_again_once_a_renewal_gets_through(bench: Bench) -> None:
    """It tries the lease that it lost: there is no other renewal that could get through."""
    faults, done = Faults(), asyncio.Event()
    asked = Asked(faults.wrap(bench.driver))
    bench.driver = cast(Driver, asked)
    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", waits_for(done))
    worker.register("quick", lambda: None)
    await bench.enqueue(job("a"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        await lose_lease(bench, faults)
        await bench.driver.cancel(["a"], bench.clock.now())
        done.set()
        await bench.heard(JobCancelled)  # it holds nothing any more
        await bench.enqueue(job("b", type="quick"))
        for _ in range(200):
            await asyncio.sleep(0)
        assert await bench.state("b") == "ready"  # a reserve would succeed, but not the renewal after it
        await let_renew(bench, faults, JobSucceeded)
    assert asked.renewals
    assert all(asked.renewals), "a renewal of nothing would not ask the store"


@bench_test
async def test_renewals_go_over_the_workers_connection_if_the_hearts_is_gone(bench: Bench) -> None:
    store, done = Scarce(bench.driver, connections=2), asyncio.Event()
    bench.driver = cast(Driver, store)
    worker = bench.worker(lease=30, heartbeat=10, heart="thread")
    worker.register("t", waits_for(done))
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        store.failing = store.opened[1:]  # the worker's own was opened first
        for _ in range(4):
            await bench.heart_sleeps()
            bench.clock.advance(10)
            await bench.extended("j", to=bench.clock.now() + LEASE)
        done.set()
        await bench.heard(JobSucceeded)
    assert not bench.of(StoreLost)


@bench_test
async def test_a_renewal_does_not_wait_for_a_blocked_loop(bench: Bench) -> None:
    """That loop would hold up the next tries over the heart's own connection, until the lease has ended."""
    store, seen = Scarce(bench.driver, connections=1), SimpleNamespace(blocked_for=3.0)
    store.failing = [store]
    gate, parts = RenewalGate("w"), parts_of(bench.driver, bench.clock)
    heart = ThreadHeart(parts, gate, lambda delivery, error: None, cast(LoopWatch, seen))
    heart._own_driver, heart._opened = cast(Driver, store), True
    with pytest.raises(BackendUnavailable, match="its connection is gone"):
        await heart.extend([], bench.clock.now(), LEASE)
    seen.blocked_for = 0.0
    assert await heart.extend([], bench.clock.now(), LEASE) == []


# Losses ------------------------------------------------------------------------------------------------------


async def lose_lease(bench: Bench, faults: Faults) -> None:
    """Let renewals fail, sent in time, until the lease has ended; the handler is stopped when one gets through."""
    faults.fail("extend", times=100_000)
    left = faults.pending()["extend"]
    bench.clock.advance(20)
    while faults.pending()["extend"] == left:
        await asyncio.sleep(0.001)
    bench.clock.advance(10)


async def let_renew(bench: Bench, faults: Faults, heard: Any, count: int = 1, calls: Sequence[str] = ()) -> None:
    """Let renewals through again, and wait for an event."""
    faults._failures.clear()
    while len(bench.of(heard)) < count:
        await a_moment(bench, calls)


async def a_moment(bench: Bench, calls: Sequence[str]) -> None:
    if not calls:
        bench.clock.advance(0.1)
    await asyncio.sleep(0.001)


async def lose_without_the_store(bench: Bench) -> None:
    """Two workers in turns: what one has lost, the other learns from the store."""
    faults, done, calls = Faults(), asyncio.Event(), list[str]()
    bench.driver = faults.wrap(cast(Driver, Unhurried(bench.driver, calls)))
    workers = [bench.worker(lease=30, heartbeat=10, name=f"w{number}") for number in range(2)]
    await bench.enqueue(job("j"))
    for worker in workers:
        worker.register("t", waits_for(done))
    async with bench.running(workers[0]), bench.running(workers[1]):
        for losses in range(1, 6):
            await bench.heard(JobStarted, losses)
            await lose_lease(bench, faults)
            await let_renew(bench, faults, LeaseLost, losses, calls)
            await told(bench, losses, calls)
        await bench.heard(JobStarted, 6)
        done.set()
        await bench.heard(JobSucceeded)
    assert not bench.of(JobDeadLettered)
    info = await bench.info("j")
    assert (info.state, info.job.deliveries) == ("done", 6)
    kept = known_executions(info)
    assert [(each.number, each.kind) for each in kept] == [(5, "lost"), (6, "done")]
    assert kept[0].error in (CUT_OFF, "")  # "": it was taken over before its worker had told the store


@bench_test
async def test_a_job_whose_leases_end_without_the_store_is_not_dead(bench: Bench) -> None:
    await lose_without_the_store(bench)


async def told(bench: Bench, number: int, calls: Sequence[str]) -> None:
    """Wait until the heartbeats name this many executions."""
    while True:
        found = await bench.driver.workers(bench.clock.now())
        if sum(len(worker.cut_off) for worker in found) >= number:
            return
        await a_moment(bench, calls)


async def start_after(bench: Bench, *, crashed: int, cut_off: int, max_lost: int = 3, told: bool = True) -> Worker:
    """A worker that finds a job with that many losses: first those that were cut off, then the crashes."""
    await bench.enqueue(job("j"))
    for _ in range(cut_off + crashed):
        await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "other")
        bench.clock.advance(30)
    info = WorkerInfo(
        worker="other",
        queues=("default",),
        running=0,
        started_at=bench.clock.now(),
        seen_at=bench.clock.now(),
        cut_off=tuple(("j", number + 1) for number in range(cut_off)),
    )
    if told:
        await bench.driver.beat(info, bench.clock.now())
    worker = bench.worker(max_lost=max_lost)
    worker.register("t", lambda: None)
    return worker


async def verdict(bench: Bench, worker: Worker) -> JobInfo:
    async with bench.running(worker):
        while (await bench.state("j")) not in ("done", "dlq"):
            await asyncio.sleep(0.001)
    return await bench.info("j")


@bench_test
async def test_crashes_count_beside_leases_that_were_cut_off(bench: Bench) -> None:
    info = await verdict(bench, await start_after(bench, cut_off=3, crashed=2))
    assert info.state == "done"


@bench_test
async def test_a_job_is_dead_of_its_crashes_alone(bench: Bench) -> None:
    info = await verdict(bench, await start_after(bench, cut_off=3, crashed=3))
    assert (info.state, info.job.reason) == ("dlq", "crashed 3 times")


@bench_test
async def test_what_no_worker_has_said_is_a_crash(bench: Bench) -> None:
    info = await verdict(bench, await start_after(bench, cut_off=3, crashed=0, told=False))
    assert (info.state, info.job.reason) == ("dlq", "crashed 3 times")


@bench_test
async def test_what_a_worker_has_said_counts_when_it_has_stopped(bench: Bench) -> None:
    """As after a deploy, after --max-jobs, and after each suspect, whose process runs nothing else."""
    worker = await start_after(bench, cut_off=3, crashed=0)
    [told] = await bench.driver.workers(bench.clock.now())
    await bench.driver.beat(told, bench.clock.now() - WORKER_SILENCE)
    assert (await verdict(bench, worker)).state == "done"


@bench_test
async def test_a_job_whose_leases_end_again_and_again_is_dead_at_last(bench: Bench) -> None:
    """All of its losses were cut off, one at a time; nothing says that the next execution would end well."""
    info = await verdict(bench, await start_after(bench, cut_off=20, crashed=0, max_lost=2))
    assert (info.state, info.job.reason) == ("dlq", "its lease ended 20 times without an outcome")
    assert info.job.error_class == "taskharbor.Lost"


@bench_test
async def test_a_job_is_not_buried_while_the_heartbeats_cannot_be_read(bench: Bench) -> None:
    worker = await start_after(bench, cut_off=0, crashed=3)
    faults = Faults()
    faults.fail("workers")
    worker._source = faults.wrap(worker._source)
    info = await verdict(bench, worker)
    assert info.state == "done"


def test_a_store_that_does_not_return_the_heartbeats_costs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was reserved is not renewed before it is held."""
    monkeypatch.setattr("taskharbor.worker.losses.within_lease", lambda lease_for: 0.01)

    @bench_test
    async def scenario(bench: Bench) -> None:
        worker = await start_after(bench, cut_off=0, crashed=1)
        monkeypatch.setattr(type(bench.driver), "workers", lambda *_: asyncio.Event().wait())
        assert (await verdict(bench, worker)).state == "done"

    scenario()


# Policy ------------------------------------------------------------------------------------------------------


def record(**fields: Any) -> JobRecord:
    return JobRecord(id="j", type="t", **fields)


def test_only_losses_that_the_record_counts_are_taken_off() -> None:
    trail = write_trail([Attempt(number=3, kind=AttemptKind.FAILED), Attempt(number=5, kind=AttemptKind.GIVEN_BACK)])
    assert crashes(record(lost=2, deliveries=7, trail=trail), {1, 2, 4}, 3) == 1
    assert crashes(record(lost=2, deliveries=7, trail=trail), {4, 6}, 3) == 0
    assert crashes(record(lost=1, deliveries=7), {4, 5}, 3) == 1  # of before a requeue


def test_a_lost_execution_in_the_trail_is_a_loss_all_the_same() -> None:
    trail = write_trail([Attempt(number=1, kind=AttemptKind.LOST), Attempt(number=2, kind=AttemptKind.GIVEN_BACK)])
    assert crashes(record(lost=2, deliveries=4, trail=trail), {1}, 3) == 1


def test_a_delivery_that_runs_now_is_no_loss() -> None:
    assert crashes(record(lost=1, deliveries=2), {2, 3}, 3) == 1


def test_the_ceiling_takes_everything_for_a_loss() -> None:
    most = most_losses(3)
    losses = set(range(1, most + 1))
    assert crashes(record(lost=most - 1, deliveries=most), losses, 3) == 0
    assert crashes(record(lost=most, deliveries=most + 1), losses, 3) == most


def test_only_what_is_said_of_the_same_job_counts() -> None:
    worker = WorkerInfo("w", (), 0, EPOCH, cut_off=(("j", 1), ("k", 2), ("j", 3)))
    assert cut_off_deliveries("j", [worker]) == {1, 3}


@bench_test
async def test_a_renewal_that_returns_after_the_end_of_its_lease_is_none(bench: Bench) -> None:
    late = Late(bench.driver)
    late.clock = bench.clock
    bench.driver = cast(Driver, late)
    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", waits_for(asyncio.Event()))
    await bench.enqueue(job("a"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        bench.clock.advance(10)
        await bench.heard(LeaseLost)
        while not any(info.cut_off for info in await bench.driver.workers(bench.clock.now())):
            bench.clock.advance(1)
            await asyncio.sleep(0.001)


def test_a_failed_renewal_is_tried_again_though_the_clock_of_a_test_stands_still() -> None:
    clock, faults = ManualClock(), Faults()
    with Harbor(faults.wrap("memory://"), clock=clock) as harbor:

        @harbor.task(name="slow")
        async def slow() -> None:
            clock.advance(timedelta(seconds=11))
            while "extend" in faults.pending():
                await asyncio.sleep(0)

        @harbor.task(name="quick")
        async def quick() -> None: ...

        faults.fail("extend")
        jobs = [slow.enqueue(), quick.enqueue()]
        drain(harbor)
        assert [each.status() for each in jobs] == ["done", "done"]
