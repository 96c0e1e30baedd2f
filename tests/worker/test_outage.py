"""A store that goes away is waited for, for ever, and the health answer says so."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from taskharbor.drivers import BackendUnavailable
from taskharbor.events import JobReserved, JobStarted, JobSucceeded, OutcomeRefused, StoreBack, StoreLost
from taskharbor.testing import Faults
from tests.worker.workbench import Bench, bench_test, job, waits_for


@pytest.mark.parametrize("verb", ["reserve", "settle", "wait", "open"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [BackendUnavailable("gone"), OSError("gone"), RuntimeError("a driver's bug")])
def test_a_failing_driver_call_loses_no_job(verb: str, after: bool, error: Exception) -> None:
    if verb == "open" and not isinstance(error, BackendUnavailable | OSError):
        return  # any other reason is an error at once

    @bench_test
    async def scenario(bench: Bench) -> None:
        faults = Faults()
        bench.driver = faults.wrap(bench.driver)
        worker = bench.worker(poll_interval=0.01)
        worker.register("t", lambda: None)
        await bench.enqueue(job("a"))
        faults.fail(verb, times=3, after=after, error=error)
        async with bench.running(worker) as task:
            while faults.pending():
                await asyncio.sleep(0.001)
            await bench.enqueue(job("b"))
            if verb == "reserve" and after:
                # What a lost reply had reserved comes back when its lease is over.
                while not any(event.job.id == "b" for event in bench.of(JobReserved)):
                    bench.clock.advance(31)
                    await asyncio.sleep(0.001)
                while (await bench.state("b")) != "done":
                    await asyncio.sleep(0.001)
            else:
                await bench.heard(JobSucceeded, 1)
                while (await bench.driver.counts(bench.clock.now()))["default"] != {"done": 2}:
                    bench.clock.advance(1)
                    await asyncio.sleep(0.001)
            worker.stop()
            await task
        assert bench.of(StoreLost)
        assert bench.of(StoreBack) or verb == "wait"

    scenario()


@bench_test
async def test_settling_is_given_up_when_the_lease_ends(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker()
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    faults.fail("settle", times=10_000)
    faults.fail("extend", times=10_000)
    async with bench.running(worker):
        await bench.heard(StoreLost)
        bench.clock.advance(30)
        await bench.heard(OutcomeRefused)
        faults._failures.clear()
        while not bench.of(JobSucceeded):  # once a renewal has reached the store it takes jobs again
            bench.clock.advance(1)
            await asyncio.sleep(0.001)
    assert (await bench.info("j")).job.deliveries == 2


@bench_test
async def test_settling_is_retried_while_the_lease_is_renewed(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    faults.fail("settle", times=10_000)
    async with bench.running(worker):
        await bench.heard(StoreLost)
        for _ in range(4):
            bench.clock.advance(10)
            await bench.extended("j", to=bench.clock.now() + timedelta(seconds=30))
        left = faults.pending()["settle"]
        while faults.pending()["settle"] == left:  # the lease as it was reserved is over by now
            await asyncio.sleep(0.01)
        faults._failures.clear()
        await bench.heard(JobSucceeded)
    assert not bench.of(OutcomeRefused)
    assert (await bench.info("j")).job.deliveries == 1


@bench_test
async def test_health_reports_an_outage_and_its_end(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(poll_interval=0.01)
    assert worker.health().state == "new"
    async with bench.running(worker):
        while not worker.health().ok:
            await asyncio.sleep(0)
        faults.fail("reserve", times=2)
        await bench.heard(StoreLost)
        health = worker.health()
        assert (health.ok, health.store_error) == (False, "BackendUnavailable")
        await bench.heard(StoreBack)
        assert worker.health().ok
        assert worker.health().state == "running"


@bench_test
async def test_a_store_that_refuses_to_open_is_an_error_at_once(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    faults.fail("open", error=ValueError("schema too new"))
    with pytest.raises(ValueError, match="schema too new"):
        await bench.worker().arun()


@bench_test
async def test_a_driver_that_fails_on_one_outcome_still_settles_the_others(bench: Bench) -> None:
    driver = bench.driver.sibling()
    settle = driver.settle

    async def choking(outcomes, now):
        if any(outcome.lease.job_id == "bad" for outcome in outcomes):
            raise RuntimeError("cannot digest this")
        return await settle(outcomes, now)

    driver.settle = choking  # type: ignore[method-assign]  # replaced for the test
    driver.sibling = lambda: driver  # type: ignore[method-assign]  # replaced for the test
    worker = bench.worker()
    worker._source = driver

    async def handler() -> None:
        await asyncio.sleep(0)

    worker.register("t", handler)
    await bench.enqueue(job("a"), job("bad"), job("b"))
    async with bench.running(worker):
        await bench.heard(JobSucceeded, 2)
        await bench.heard(OutcomeRefused)
        driver.settle = settle  # type: ignore[method-assign]  # replaced for the test
        bench.clock.advance(30)  # its lease is no longer kept, so it runs again
        await bench.heard(JobSucceeded, 3)


@bench_test
async def test_a_driver_that_returns_too_few_results_does_not_end_the_worker(bench: Bench) -> None:
    driver = bench.driver.sibling()
    settle = driver.settle

    async def curt(outcomes, now):
        return (await settle(outcomes, now))[1:]

    driver.settle = curt  # type: ignore[method-assign]  # replaced for the test
    driver.sibling = lambda: driver  # type: ignore[method-assign]  # replaced for the test
    worker = bench.worker()
    worker._source = driver
    worker.register("t", lambda: None)
    await bench.enqueue(job("a"), job("b"))
    async with bench.running(worker):
        await bench.heard(OutcomeRefused, 2)  # as far as the worker knows
        driver.settle = settle  # type: ignore[method-assign]  # replaced for the test
        await bench.enqueue(job("c"))
        await bench.heard(JobSucceeded)
    assert [await bench.state(id) for id in "abc"] == ["done", "done", "done"]


@bench_test
async def test_a_service_that_breaks_ends_the_worker_loudly_and_gives_back(bench: Bench) -> None:
    worker = bench.worker()

    async def handler() -> None:
        await asyncio.Event().wait()

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    running = asyncio.create_task(worker.arun())
    while worker.health().running == 0:
        await asyncio.sleep(0)
    assert worker._services is not None
    worker._services.fetcher._room = lambda: 1 // 0
    worker._hurry.set()
    with pytest.raises(ZeroDivisionError):
        await running
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("ready", 0)


@bench_test
async def test_a_failed_extend_is_forgotten_once_nothing_is_held(bench: Bench) -> None:
    faults, go = Faults(), asyncio.Event()
    bench.driver = faults.wrap(bench.driver)
    worker = bench.worker(poll_interval=0.01)
    worker.register("t", waits_for(go))
    await bench.enqueue(job("j"))
    async with bench.running(worker):
        await bench.heard(JobStarted)
        faults.fail("extend")
        bench.clock.advance(10)
        await bench.heard(StoreLost)
        assert not worker.health().ok
        go.set()
        await bench.heard(JobSucceeded)
        bench.clock.advance(10)
        await bench.heard(StoreBack)
        while not worker.health().ok:  # until the next poll
            await asyncio.sleep(0.001)


def test_a_schema_that_does_not_fit_ends_the_worker_at_once(tmp_path: Path) -> None:
    import sqlite3

    from taskharbor.drivers import DriverError, open_driver
    from taskharbor.worker import Worker

    async def make() -> None:
        driver = open_driver(f"sqlite:///{tmp_path}/jobs.db")
        await driver.open()
        await driver.close()

    asyncio.run(make())
    connection = sqlite3.connect(tmp_path / "jobs.db")
    connection.execute("UPDATE taskharbor_meta SET version = 99, oldest = 99")
    connection.commit()
    connection.close()
    with pytest.raises(DriverError, match="upgrade TaskHarbor"):
        Worker(f"sqlite:///{tmp_path}/jobs.db").run(until_empty=True)
