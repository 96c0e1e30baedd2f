"""How many connections a worker holds, and how often an idle one asks: the tables of docs/driver-postgres.md."""

import asyncio
from typing import Any

import psycopg
import pytest

from taskharbor import JobContext
from taskharbor.drivers.postgres import handler_pool, pool
from taskharbor.drivers.postgres.driver import PostgresDriver
from taskharbor.worker import Worker
from tests.drivers.postgres_stores import emptied
from tests.worker.workbench import job, run

pytestmark = pytest.mark.lane("postgres")
COUNT = "select count(*) from pg_stat_activity where application_name = 'taskharbor' and datname = current_database()"


def connections(address: str) -> int:
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute(COUNT.encode()).fetchone()
    assert row is not None
    return int(row[0])


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def test_a_worker_holds_few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pool, handler_pool):
        monkeypatch.setattr(module, "IDLE_S", 0.2)
    address = emptied()
    go_on = asyncio.Event()
    inside = [0]
    most = [0]

    async def handler(ctx: JobContext) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("select 1")
            inside[0] += 1
            most[0] = max(most[0], connections(address))
            await go_on.wait()

    async def scenario() -> None:
        driver = PostgresDriver(f"{address}?pool_size=4")
        worker = Worker(driver, concurrency=12, lease=60)
        worker.register("t", handler)
        filling = driver.sibling()
        await filling.open()
        running = asyncio.create_task(worker.arun())
        await filling.enqueue([job(f"j{number}") for number in range(12)], await filling.server_time())
        await filling.close()
        await until(lambda: inside[0] == 4)
        assert most[0] <= 3 + 4
        go_on.set()
        await until(lambda: inside[0] == 12)
        assert most[0] <= 3 + 4
        # The transactions' connections are closed with a heartbeat, fifteen seconds apart: ask for it.
        await until(lambda: worker._services is not None and not worker._services.capacity.running)
        services: Any = worker._services

        def is_idle() -> bool:
            services._driver._handlers.trim()
            return connections(address) <= 2

        await until(is_idle)
        worker.hurry()
        await running

    run(scenario())
