"""The seed documents' integration tests on PostgreSQL: a real worker on a real server."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from taskharbor import JobContext
from taskharbor.drivers import Ack, LeaseExpired, LeaseMismatch
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.events import JobStarted
from taskharbor.policy.retry import Fixed
from tests.servers import postgres
from tests.worker.bench import Bench, job, run

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=30)


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


@pytest.fixture
def on_server() -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    def go(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def live() -> None:
            driver = PostgresDriver(address())
            await driver.open()
            try:
                await scenario(Bench(driver))
            finally:
                await driver.close()

        run(live())

    postgres.empty(address())
    return go


def test_enqueue_and_process(on_server):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        worker = bench.worker()
        worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(200)])
        await worker.arun(until_empty=True)
        assert sorted(seen) == sorted(f"j{n}" for n in range(200))
        assert await bench.driver.counts(bench.clock.now()) == {"default": {"done": 200}}

    on_server(scenario)


def test_retry_and_dlq(on_server):
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

    on_server(scenario)


def test_an_expired_lease_is_reclaimed(on_server):
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

    on_server(scenario)


def test_several_workers_reserve_without_duplication(on_server):
    async def scenario(bench: Bench) -> None:
        seen: list[str] = []
        workers = [bench.worker(concurrency=5) for _ in range(4)]
        for worker in workers:
            worker.register("t", lambda name: seen.append(name))
        await bench.enqueue(*[job(f"j{n}", payload=b'{"name":"j%d"}' % n) for n in range(300)])
        await asyncio.gather(*(worker.arun(until_empty=True) for worker in workers))
        assert sorted(seen) == sorted(f"j{n}" for n in range(300))
        assert len(bench.of(JobStarted)) == 300

    on_server(scenario)


def test_the_same_key_twice_is_one_job(on_server):
    async def scenario(bench: Bench) -> None:
        seen: list[int] = []
        worker = bench.worker()
        worker.register("t", lambda: seen.append(1))
        await bench.enqueue(job("a", idempotency_key="k\x00ey"))
        await bench.enqueue(job("b", idempotency_key="k\x00ey"), job("c", idempotency_key="k"))
        await worker.arun(until_empty=True)
        assert len(seen) == 2

    on_server(scenario)


@pytest.mark.parametrize("coroutine", [True, False])
def test_a_handler_shares_a_transaction_with_its_ack(on_server, coroutine):
    with psycopg.connect(address(), autocommit=True) as connection:
        connection.execute("create table if not exists payments (id serial primary key)")
        connection.execute("truncate payments")

    async def scenario(bench: Bench) -> None:
        worker = bench.worker(retry=Fixed(0))
        tried: list[int] = []

        async def pays(ctx: JobContext) -> None:
            tried.append(1)
            async with ctx.transaction() as connection:
                await connection.execute("insert into payments default values")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        def pays_plainly(ctx: JobContext) -> None:
            tried.append(1)
            with ctx.transaction() as connection:
                connection.execute("insert into payments default values")
            if len(tried) == 1:
                raise ValueError("after the block: everything is undone")

        worker.register("t", pays if coroutine else pays_plainly)
        await bench.enqueue(job("j"))
        await worker.arun(until_empty=True)
        assert len(tried) == 2
        assert (await bench.info("j")).state == "done"

    on_server(scenario)
    with psycopg.connect(address()) as connection:
        assert connection.execute("select count(*) from payments").fetchone() == (1,)


def test_a_lost_lease_undoes_the_writes(on_server):
    with psycopg.connect(address(), autocommit=True) as connection:
        connection.execute("create table if not exists payments (id serial primary key)")
        connection.execute("truncate payments")

    async def scenario(bench: Bench) -> None:
        driver: Any = bench.driver
        now = bench.clock.now()
        await bench.enqueue(job("j"))
        (held,) = await driver.reserve(["default"], now, LEASE, 1)
        transaction = driver.transaction(held.lease)
        async with transaction as connection:
            await connection.execute("insert into payments default values")
        late = now + LEASE
        assert isinstance(await transaction.commit(Ack(held.lease), late), LeaseExpired)
        (again,) = await driver.reserve(["default"], late, LEASE, 1)
        plain = driver.transaction_sync(held.lease)
        with plain as other:
            other.execute("insert into payments default values")
        assert isinstance(plain.commit(Ack(held.lease), late), LeaseMismatch)
        spawning = driver.transaction(again.lease)
        async with spawning as connection:
            await connection.execute("insert into payments default values")
        assert await spawning.commit(Ack(again.lease, b"1", (job("child", depends_on=("j",)),)), late) is None
        await spawning.rollback()
        assert (await bench.info("child")).state == "ready"
        abandoned = driver.transaction(again.lease)
        async with abandoned as connection:
            await connection.execute("insert into payments default values")
        await abandoned.rollback()
        await abandoned.rollback()

    on_server(scenario)
    with psycopg.connect(address()) as connection:
        assert connection.execute("select count(*) from payments").fetchone() == (1,)
