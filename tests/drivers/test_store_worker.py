"""The seed documents' integration tests on each SQL store: a real worker on a real file, and on a real server."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskharbor.drivers import open_driver
from taskharbor.events import JobStarted
from taskharbor.policy.retry import Fixed
from tests.servers import postgres
from tests.worker.workbench import Bench, job, run

LEASE = timedelta(seconds=30)
STORES = [pytest.param(name, marks=pytest.mark.lane(name)) for name in ("sqlite", "postgres")]


@functools.cache
def database() -> str:
    return postgres.shared().address(postgres.shared().database())


@pytest.fixture(params=STORES)
def on_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs a scenario with a bench on an empty store."""
    if request.param == "postgres":
        postgres.empty(database())
    dsn = database() if request.param == "postgres" else f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"

    def go(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            driver = open_driver(dsn)
            await driver.open()
            try:
                await scenario(Bench(driver))
            finally:
                await driver.close()

        run(live())

    return go


def test_enqueue_and_process(on_store):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        worker = bench.worker()
        worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(200)])
        await worker.arun(until_empty=True)
        await worker.arun(until_empty=True)
        assert sorted(seen) == sorted(f"j{n}" for n in range(200))
        assert await bench.driver.counts(bench.clock.now()) == {"default": {"done": 200}}

    on_store(scenario)


def test_retry_and_dlq(on_store):
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))

        async def fails() -> None:
            raise ValueError("no luck")

        worker.register("t", fails)
        await bench.enqueue(job("j", max_attempts=3))
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (info.state, info.job.attempts) == ("dlq", 3)
        assert info.job.last_error.startswith("ValueError: no luck")
        assert await bench.driver.requeue(["j"], bench.clock.now(), reset_attempts=True) == [None]
        worker.register("other", fails)
        assert (await bench.info("j")).state == "ready"

    on_store(scenario)


def test_an_expired_lease_is_reclaimed(on_store):
    async def scenario(bench: Bench) -> None:
        await bench.enqueue(job("j"))
        held = (await bench.driver.reserve(["default"], bench.clock.now(), LEASE, 1, "gone"))[0]
        seen: list[int] = []
        worker = bench.worker()
        worker.register("t", lambda: seen.append(1))
        await worker.arun(until_empty=True)
        assert seen == []
        bench.clock.advance(30)
        await worker.arun(until_empty=True)
        info = await bench.info("j")
        assert (seen, info.state, info.job.deliveries) == ([1], "done", held.job.deliveries + 1)

    on_store(scenario)


def test_several_workers_reserve_without_duplication(on_store):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        workers = [bench.worker(concurrency=5) for _ in range(4)]
        for worker in workers:
            worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(300)])
        await asyncio.gather(*(worker.arun(until_empty=True) for worker in workers))
        assert sorted(seen) == sorted(f"j{n}" for n in range(300))
        assert len(bench.of(JobStarted)) == 300

    on_store(scenario)


def test_the_same_key_twice_is_one_job(on_store):
    async def scenario(bench: Bench) -> None:
        seen: list[int] = []
        worker = bench.worker()
        worker.register("t", lambda: seen.append(1))
        await bench.enqueue(job("a", idempotency_key="k\x00ey"))
        await bench.enqueue(job("b", idempotency_key="k\x00ey"), job("c", idempotency_key="k"))
        await worker.arun(until_empty=True)
        assert len(seen) == 2
        assert (await bench.info("a")).job.idempotency_key == "k\x00ey"

    on_store(scenario)
