"""Handlers on PostgreSQL that share a transaction with their ack; what all stores do is in test_store_worker."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest

from taskharbor.drivers import Ack, LeaseExpired, LeaseMismatch
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.events import LeaseLost, OutcomeRefused, StoreLost
from tests.drivers.test_store_worker import run_on
from tests.servers import postgres
from tests.worker.workbench import Bench, job

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=30)


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


@pytest.fixture
def on_server() -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]:
    postgres.empty(address())
    return functools.partial(run_on, address())


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


def test_an_open_transaction_of_the_application_costs_only_its_job(on_server):
    """A job that an open transaction depends on is acked when that is over. The others are done meanwhile, every lease
    is kept, and each ran once."""

    async def scenario(bench: Bench) -> None:
        names = [f"j{n}" for n in range(8)]
        go = asyncio.Event()
        worker = bench.worker(concurrency=8, poll_interval=0.01)
        worker.register("t", lambda: None)

        async def waits() -> None:
            await go.wait()

        worker.register("waits", waits)
        await bench.enqueue(*(job(name) for name in names[2:]), job("j1", "waits"), job("j0", "waits"))
        async with bench.running(worker), await psycopg.AsyncConnection.connect(address()) as connection:
            while await bench.state("j0") != "inflight":
                await asyncio.sleep(0)
            driver = cast(PostgresDriver, bench.driver)
            await driver.enqueue_on(connection, [job("after", depends_on=("j0",))], bench.clock.now())
            go.set()
            while (await bench.driver.counts(bench.clock.now()))["default"].get("done") != 7:
                await asyncio.sleep(0)
            assert await bench.state("j0") == "inflight"
            bench.clock.advance(10)
            await bench.extended("j0", to=bench.clock.now() + LEASE)
            await bench.enqueue(job("later"))
            while await bench.state("later") != "done":
                await asyncio.sleep(0)
            await connection.commit()
            while await bench.state("after") != "done":
                await asyncio.sleep(0)
        for name in (*names, "later", "after"):
            assert (await bench.info(name)).job.deliveries == 1
        assert not bench.of(OutcomeRefused) + bench.of(LeaseLost) + bench.of(StoreLost)

    on_server(scenario)
