"""The seed documents' integration tests on SQLite: a real worker on a real file."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers.sqlite import SqliteDriver
from taskharbor.events import JobStarted
from taskharbor.policy.retry import Fixed
from tests.worker.bench import Bench, job, run

pytestmark = pytest.mark.lane("sqlite")
LEASE = timedelta(seconds=30)


@pytest.fixture
def on_file(tmp_path: Any) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def go(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
            await driver.open()
            try:
                await scenario(Bench(driver))
            finally:
                await driver.close()

        run(live())

    return go


def test_enqueue_and_process(on_file):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        worker = bench.worker()
        worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(200)])
        await worker.arun(until_empty=True)
        await worker.arun(until_empty=True)
        assert sorted(seen) == sorted(f"j{n}" for n in range(200))
        assert await bench.driver.counts(bench.clock.now()) == {"default": {"done": 200}}

    on_file(scenario)


def test_retry_and_dlq(on_file):
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

    on_file(scenario)


def test_an_expired_lease_is_reclaimed(on_file):
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

    on_file(scenario)


def test_several_workers_reserve_without_duplication(on_file):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        workers = [bench.worker(concurrency=5) for _ in range(4)]
        for worker in workers:
            worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(300)])
        await asyncio.gather(*(worker.arun(until_empty=True) for worker in workers))
        assert sorted(seen) == sorted(f"j{n}" for n in range(300))
        assert len(bench.of(JobStarted)) == 300

    on_file(scenario)


def test_the_same_key_twice_is_one_job(on_file):
    async def scenario(bench: Bench) -> None:
        seen: list[int] = []
        worker = bench.worker()
        worker.register("t", lambda: seen.append(1))
        await bench.enqueue(job("a", idempotency_key="k\x00ey"))
        await bench.enqueue(job("b", idempotency_key="k\x00ey"), job("c", idempotency_key="k"))
        await worker.arun(until_empty=True)
        assert len(seen) == 2
        assert (await bench.info("a")).job.idempotency_key == "k\x00ey"

    on_file(scenario)


@pytest.mark.parametrize("coroutine", [True, False])
def test_a_handler_shares_a_transaction_with_its_ack(on_file, coroutine):
    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))
        tried: list[int] = []

        async def pays(ctx: JobContext) -> None:
            tried.append(1)
            async with ctx.transaction() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY)")
                connection.execute("INSERT INTO payments DEFAULT VALUES")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        def pays_plainly(ctx: JobContext) -> None:
            tried.append(1)
            with ctx.transaction() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS payments (id INTEGER PRIMARY KEY)")
                connection.execute("INSERT INTO payments DEFAULT VALUES")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        worker.register("t", pays if coroutine else pays_plainly)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        assert len(tried) == 2
        assert (await bench.info("j")).state == "done"
        driver: Any = bench.driver
        rows = await driver.hub.read(lambda tx: tx.all("SELECT id FROM payments"))
        assert rows == [(1,)]

    on_file(scenario)
