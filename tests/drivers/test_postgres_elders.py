"""A transaction that stays open somewhere: a worker says which server process it is, once."""

import asyncio
import logging
from datetime import UTC, datetime

import psycopg
import pytest

from taskharbor.drivers import WorkerInfo
from taskharbor.drivers.postgres import PostgresDriver, elders
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


@pytest.mark.parametrize("how", ["writes", "holds a snapshot", "holds nothing"])
def test_it_is_named_once(how, monkeypatch, caplog):
    monkeypatch.setattr(elders, "OLD", 0)
    address = postgres.shared().address(postgres.shared().database())

    async def scenario() -> int:
        driver = PostgresDriver(address)
        await driver.open()
        info = WorkerInfo(worker="w", queues=("default",), running=0, started_at=NOW)
        with psycopg.connect(address) as connection:
            if how == "holds a snapshot":
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("create table mine (n integer)" if how == "writes" else "select 1 from pg_class")
            for _ in range(3):
                await driver.beat(info, NOW)
            pid = connection.info.backend_pid
            connection.rollback()
        await driver.beat(info, NOW)
        await driver.close()
        return pid

    with caplog.at_level(logging.WARNING, "taskharbor.drivers.postgres"):
        pid = asyncio.run(scenario())
    told = [record.getMessage() for record in caplog.records if "transaction open" in record.getMessage()]
    assert len(told) == (0 if how == "holds nothing" else 1)
    assert all(f"the server process {pid} has had" in text for text in told)
