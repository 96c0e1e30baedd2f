"""Graceful stop: finish within the grace period, give the rest back at once with no attempt spent."""

import asyncio
import signal
import threading
from datetime import timedelta

import pytest

from taskharbor import BlockingCall, JobContext
from taskharbor.events import JobGivenBack, JobStarted, StoreLost, WorkerStopped, WorkerStopping
from taskharbor.testing import Faults
from tests.worker.workbench import Bench, bench_test, job, run


@bench_test
async def test_the_signal_is_set_at_once_and_coroutines_are_cancelled_at_the_end_of_the_grace(bench: Bench) -> None:
    told, cancelled = asyncio.Event(), asyncio.Event()
    worker = bench.worker(shutdown_timeout=30, lease=300)

    async def handler(ctx: JobContext) -> None:
        assert await ctx.cancelled.hit() == "shutdown"
        told.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    running = asyncio.create_task(worker.arun())
    await bench.heard(JobStarted)
    worker.stop()
    await told.wait()
    assert not cancelled.is_set()
    bench.clock.advance(30)
    await running
    assert cancelled.is_set()
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.lost, info.job.run_at) == ("ready", 0, 0, None)
    assert [event.reason for event in bench.of(JobGivenBack)] == ["shutdown"]
    assert type(bench.events[-1]) is WorkerStopped


@bench_test
async def test_what_finishes_within_the_grace_is_settled(bench: Bench) -> None:
    worker = bench.worker()

    async def handler(ctx: JobContext) -> str:
        await ctx.cancelled.hit()
        return "just in time"

    worker.register("t", handler)
    await bench.enqueue(job("j"))
    await bench.run_until(JobStarted, worker, worker.stop)
    assert (await bench.info("j")).job.result == b'"just in time"'


@bench_test
async def test_hurry_gives_a_thread_back_without_waiting_for_it(bench: Bench) -> None:
    release = threading.Event()
    worker = bench.worker(shutdown_timeout=3600)

    def stuck() -> None:
        release.wait(30)

    worker.register("t", stuck)
    await bench.enqueue(job("j"))
    await bench.run_until(JobStarted, worker, worker.hurry)
    info = await bench.info("j")
    assert (info.state, info.job.attempts) == ("ready", 0)
    release.set()


@bench_test
async def test_cancelling_arun_gives_everything_back(bench: Bench) -> None:
    worker = bench.worker()

    async def handler() -> None:
        await asyncio.Event().wait()

    worker.register("t", handler)
    await bench.enqueue(*[job(f"j{n}") for n in range(5)])
    running = asyncio.create_task(worker.arun())
    await bench.heard(JobStarted, 5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"ready": 5}}


@bench_test
async def test_jobs_of_a_reserve_under_way_at_the_stop_are_given_back(bench: Bench) -> None:
    inside, go = asyncio.Event(), asyncio.Event()
    worker = bench.worker()
    worker.register("t", lambda: None)
    driver = bench.driver.sibling()
    reserve = driver.reserve

    async def slow_reserve(*args: object) -> object:
        batch = await reserve(*args)  # type: ignore[arg-type]  # wrong on purpose
        inside.set()
        await go.wait()
        return batch

    driver.reserve = slow_reserve  # type: ignore[method-assign,assignment]  # replaced for the test
    driver.sibling = lambda: driver  # type: ignore[method-assign]  # replaced for the test
    worker._source = driver
    await bench.enqueue(job("j"))
    running = asyncio.create_task(worker.arun())
    await inside.wait()
    worker.stop()
    await bench.heard(WorkerStopping)
    go.set()
    await running
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.deliveries) == ("ready", 0, 1)


@bench_test
async def test_a_worker_can_run_again_and_not_twice_at_once(bench: Bench) -> None:
    worker = bench.worker()
    running = asyncio.create_task(worker.arun())
    await bench.heard_any()
    with pytest.raises(RuntimeError, match="runs already"):
        await worker.arun()
    worker.stop()
    await running
    await worker.arun(until_empty=True)
    assert worker.health().state == "stopped"


def test_run_stops_on_a_signal() -> None:
    """In the main thread: the handler sends TERM to its own process, as an operator would."""
    from taskharbor.worker import Worker

    worker = Worker("memory://name-of-the-signal-test", heart="loop")

    def handler() -> None:
        signal.raise_signal(signal.SIGTERM)

    worker.register("t", handler)

    async def enqueue() -> None:
        from taskharbor.drivers import open_driver

        driver = open_driver("memory://name-of-the-signal-test")
        await driver.enqueue([job("j")], await driver.server_time() - timedelta(seconds=1))

    run(enqueue())
    before = signal.getsignal(signal.SIGTERM)
    worker.run()
    assert worker.health().state == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


@bench_test
async def test_settles_are_retried_while_stopping(bench: Bench) -> None:
    faults = Faults()
    bench.driver = faults.wrap(bench.driver)
    faults.fail("settle", times=2)
    await bench.ran(lambda: None, job("j"))
    assert await bench.state("j") == "done"
    assert len(bench.of(StoreLost)) == 1


@bench_test
async def test_cancelling_twice_still_ends_everything(bench: Bench) -> None:
    worker = bench.worker(heart="thread")

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if worker.health().state == "stopped":
                    raise

    worker.register("t", stubborn)
    await bench.enqueue(job("j"))
    running = asyncio.create_task(worker.arun())
    await bench.heard(JobStarted)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert type(bench.events[-1]) is WorkerStopped
    assert not [thread for thread in threading.enumerate() if thread.name == "taskharbor-heart"]
    assert await bench.state("j") == "ready"


@bench_test
async def test_a_stop_before_the_first_run_stops_that_run(bench: Bench) -> None:
    worker = bench.worker()
    worker.register("t", lambda: None)
    await bench.enqueue(job("j"))
    worker.stop()
    await worker.arun()
    assert await bench.state("j") == "ready"
    await worker.arun(until_empty=True)
    assert await bench.state("j") == "done"


@bench_test
async def test_a_blocking_run_on_a_running_loop_names_arun(bench: Bench) -> None:
    with pytest.raises(BlockingCall, match=r"use: await worker\.arun"):
        bench.worker().run()
