"""The seed documents' integration tests on each SQL store: a real worker on a real file, and on a real server."""

import asyncio
import functools
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskharbor import JobContext
from taskharbor.conformance.environment import opened, settled
from taskharbor.drivers import open_driver
from taskharbor.events import JobStarted
from taskharbor.policy.retry import Fixed
from tests.servers import postgres
from tests.worker.workbench import Bench, job, run

LEASE = timedelta(seconds=30)
STORES = [pytest.param(name, marks=pytest.mark.lane(name)) for name in ("sqlite", "postgres")]


@functools.cache
def database() -> str:
    return postgres.shared().address(postgres.shared().store())


@pytest.fixture(params=STORES)
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "postgres":
        postgres.empty(database())
        return database()
    return f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"


@pytest.fixture
def on_store(dsn: str) -> Any:
    """Runs a scenario with a bench on an empty store."""
    return functools.partial(run_on, dsn)


def run_on(dsn: str, scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with a bench on a store."""

    async def live() -> None:
        async with opened(open_driver(dsn)) as driver:
            await scenario(Bench(driver))

    run(live())


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


@pytest.mark.parametrize("colour", ["coroutine", "function"])
def test_a_handler_shares_a_transaction_with_its_ack(on_store, dsn, tmp_path, colour):
    table = f"payments_{colour}"
    writes = (f"create table if not exists {table} (n integer)", f"insert into {table} values (1)")
    tried: list[int] = []

    def fail_first() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("after the block: everything is undone")

    async def pays(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            for statement in writes:
                await settled(connection.execute(statement))
        fail_first()

    def pays_plainly(ctx: JobContext) -> None:
        with ctx.transaction() as connection:
            for statement in writes:
                connection.execute(statement)
        fail_first()

    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))
        worker.register("t", pays if colour == "coroutine" else pays_plainly)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        assert len(tried) == 2
        assert (await bench.info("j")).state == "done"

    on_store(scenario)
    connect: Any = sqlite3.connect if dsn.startswith("sqlite") else psycopg.connect
    with closing(connect(tmp_path / "jobs.db" if dsn.startswith("sqlite") else dsn)) as connection:
        assert connection.execute(f"select count(*) from {table}").fetchone() == (1,)


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
