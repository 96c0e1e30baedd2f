"""The tests that the seed documents name, each by its name."""

import asyncio
from datetime import timedelta

import pytest

from taskharbor import JobContext, Unrecoverable
from taskharbor.drivers import JobRecord, LeaseExpired
from taskharbor.events import JobDeadLettered, JobFailed, JobRetried, JobStarted
from taskharbor.policy.retry import Exponential, Fixed
from tests.worker.workbench import Bench, bench_test, job, waits_for

LEASE = timedelta(seconds=30)


@bench_test
async def test_enqueue_is_processed_exactly_once(bench: Bench) -> None:
    seen: list[str] = []
    worker = await bench.ran(
        lambda name: seen.append(name), *[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(50)]
    )
    await worker.arun(until_empty=True)
    assert sorted(seen) == sorted(f"j{n}" for n in range(50))
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 50}}


@bench_test
async def test_scheduled_job_does_not_run_before_run_at_and_does_after(bench: Bench) -> None:
    seen: list[str] = []
    worker = bench.worker()
    worker.register("t", lambda: seen.append("ran"))
    await bench.enqueue(job("j", run_at=bench.clock.now() + timedelta(seconds=60)))
    bench.clock.advance(59.999)
    await worker.arun(until_empty=True)
    assert (seen, await bench.state("j")) == ([], "scheduled")
    bench.clock.advance(0.001)
    await worker.arun(until_empty=True)
    assert (seen, await bench.state("j")) == (["ran"], "done")


@bench_test
async def test_graceful_shutdown_drops_nothing(bench: Bench) -> None:
    started, go = asyncio.Event(), asyncio.Event()
    worker = bench.worker(concurrency=2)

    async def handler() -> str:
        started.set()
        await go.wait()
        return "finished"

    worker.register("t", handler)
    await bench.enqueue(*[job(f"j{n}") for n in range(5)])
    running = asyncio.create_task(worker.arun())
    await started.wait()
    worker.stop()
    go.set()
    await running
    counts = (await bench.driver.counts(bench.clock.now()))["default"]
    assert counts["done"] >= 1
    assert sum(counts.values()) == 5
    assert "inflight" not in counts
    infos = [await bench.info(f"j{n}") for n in range(5)]
    assert [info.job.attempts for info in infos] == [0] * 5


@pytest.mark.parametrize("limit", [1, 2, 5])
@bench_test
async def test_n_failures_end_in_the_dlq_with_attempts_n(bench: Bench, limit: int) -> None:
    async def handler() -> None:
        raise ValueError("no luck")

    await bench.ran(handler, job("j", max_attempts=limit), retry=Fixed(0))
    info = await bench.info("j")
    assert info.state == "dlq"
    assert info.job.attempts == limit
    assert info.job.reason == f"failed {limit} of {limit} attempts"
    assert info.job.last_error.startswith("ValueError: no luck")
    assert info.job.failed_at == bench.clock.now()
    assert len(bench.of(JobFailed)) == limit
    assert len(bench.of(JobRetried)) == limit - 1
    assert len(bench.of(JobDeadLettered)) == 1


@bench_test
async def test_max_attempts_is_five_by_default(bench: Bench) -> None:
    await bench.ran(_fails, job("j"), retry=Fixed(0))
    assert (await bench.info("j")).job.attempts == 5


@bench_test
async def test_delays_grow_with_every_attempt(bench: Bench) -> None:
    worker = bench.worker(retry=Exponential(jitter=0))
    worker.register("t", _fails)
    await bench.enqueue(job("j"))
    delays = []
    for _ in range(4):
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert info.state == "scheduled"
        assert info.job.run_at is not None
        delays.append((info.job.run_at - bench.clock.now()).total_seconds())
        bench.clock.advance(delays[-1])
    await worker.arun(until_empty=True)
    assert delays == [1, 2, 4, 8]
    assert await bench.state("j") == "dlq"


@bench_test
async def test_timeout_cancels_the_handler_and_is_recorded(bench: Bench) -> None:
    reasons: list[str | None] = []

    async def handler(ctx: JobContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx.cancelled.reason)

    async with bench.serving(handler, job("j", timeout=timedelta(seconds=20))):
        await bench.heard(JobStarted)
        bench.clock.advance(20)
        await bench.heard(JobRetried)
        assert reasons == ["timeout"]
        assert [failed.seconds for failed in bench.of(JobFailed)] == [20]
    info = await bench.info("j")
    assert info.job.attempts == 1
    assert info.job.last_error == "TimeoutError: timed out after 20 s"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        BaseException("base"),
        Unreadable(),
        StopIteration(1),
        ExceptionGroup("several", [ValueError("a")]),
        MemoryError(),
        ValueError("\ud800\x00" + "ä" * 100_000),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["coroutine", "function"])
@bench_test
async def test_an_exception_of_any_kind_does_not_stop_the_worker(bench: Bench, error: BaseException, kind: str) -> None:
    worker = bench.worker(retry=Fixed(0))

    async def bad() -> None:
        raise error

    def bad_function() -> None:
        raise error

    worker.register("bad", bad if kind == "coroutine" else bad_function)
    worker.register("good", lambda: None)
    await bench.enqueue(job("bad", "bad", max_attempts=2), job("good", "good"))
    await worker.arun(until_empty=True)
    info = await bench.info("bad")
    assert info.state == "dlq"
    assert info.job.attempts == 2
    # A coroutine cannot let a StopIteration out: Python turns it into a RuntimeError.
    expected = "RuntimeError" if kind == "coroutine" and isinstance(error, StopIteration) else type(error).__name__
    assert info.job.last_error.startswith(expected)
    assert len(info.job.last_error.encode()) <= 8192
    assert await bench.state("good") == "done"


@bench_test
async def test_an_expired_lease_is_reservable_again(bench: Bench) -> None:
    await bench.enqueue(job("j"))
    now = bench.clock.now()
    [first] = await bench.driver.reserve(["default"], now, LEASE, 1)
    assert await bench.driver.reserve(["default"], now + LEASE - timedelta(milliseconds=1), LEASE, 1) == []
    [second] = await bench.driver.reserve(["default"], now + LEASE, LEASE, 1)
    assert (second.job.id, second.job.deliveries, second.job.lost) == ("j", 2, 1)
    with pytest.raises(LeaseExpired):
        await bench.driver.ack(second.lease, now + 2 * LEASE)
    assert first.lease.token != second.lease.token


@bench_test
async def test_an_extended_lease_is_not_reclaimed_during_a_long_job(bench: Bench) -> None:
    go = asyncio.Event()
    worker = bench.worker(lease=30, heartbeat=10)
    worker.register("t", waits_for(go))
    await bench.enqueue(job("j"))
    async with bench.running(worker) as task:
        await bench.heard(JobStarted)
        for _ in range(12):  # two minutes, four leases long
            bench.clock.advance(10)
            await bench.extended("j", to=bench.clock.now() + LEASE)
            assert await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1) == []
        go.set()
        worker.stop()
        await task
    info = await bench.info("j")
    assert (info.state, info.job.deliveries) == ("done", 1)


@bench_test
async def test_two_workers_never_hold_one_job(bench: Bench) -> None:
    holding: set[str] = set()
    runs: list[str] = []

    async def handler(name: str) -> None:
        assert name not in holding
        holding.add(name)
        runs.append(name)
        await asyncio.sleep(0)
        holding.discard(name)

    workers = [bench.worker(concurrency=4) for _ in range(4)]
    for worker in workers:
        worker.register("t", handler)
    await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(300)])
    await asyncio.gather(*[worker.arun(until_empty=True) for worker in workers])
    assert sorted(runs) == sorted(f"j{n}" for n in range(300))
    assert (await bench.driver.counts(bench.clock.now())) == {"default": {"done": 300}}


@bench_test
async def test_unrecoverable_goes_to_the_dlq_at_once(bench: Bench) -> None:
    async def handler() -> None:
        raise Unrecoverable("the account was closed")

    await bench.ran(handler, job("j", max_attempts=9))
    info = await bench.info("j")
    assert (info.state, info.job.attempts, info.job.reason) == ("dlq", 1, "the account was closed")


async def _fails() -> None:
    raise ValueError("no luck")


def test_the_job_record_of_a_seed_has_its_fields() -> None:
    wanted = "id type queue payload run_at timeout attempts max_attempts last_error failed_at idempotency_key metadata"
    assert set(wanted.split()) <= set(JobRecord.__struct_fields__)
