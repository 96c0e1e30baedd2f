"""A transaction that stays open: a worker logs which server process it is, and the cost of a reserve stays bounded."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord, WorkerInfo
from taskharbor.drivers.postgres import PostgresDriver, long_transactions
from tests import lanes
from tests.drivers.test_postgres_plans import FILL, TICKS, explained
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


@pytest.mark.parametrize("how", ["writes", "holds a snapshot", "holds nothing"])
def test_a_long_transaction_is_logged_once(how, monkeypatch, caplog):
    monkeypatch.setattr(long_transactions, "OLD_S", 0)
    address = postgres.shared().address(postgres.shared().store())

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


PROCESSED = lanes.figure(test=12_000, full=100_000)
LEASE = timedelta(seconds=30)


def pages(address: str, floors: str | None) -> int:
    tokens = ",".join(f"{n:032x}" for n in range(100))
    given = f"'[\"q0\"]', {TICKS}, {TICKS + 60_000_000}, 100, 'w', '{tokens}', %s, true"
    return explained(address, f"select * from taskharbor.reserve_queues_v1({given})", (floors,))[1]


def test_dead_entries_under_an_open_transaction_are_not_read_again():
    address = postgres.shared().address(postgres.shared().store())

    async def scenario() -> None:
        driver = PostgresDriver(address)
        await driver.open()
        with psycopg.connect(address) as old, psycopg.connect(address, autocommit=True) as other:
            other.execute("alter table taskharbor.jobs set (autovacuum_enabled = false)")
            fill = FILL.format(kind="r", priority=0, state=2, wake=0, grp="null", number=3 * (PROCESSED + 1000))
            other.execute(fill.encode())
            before = pages(address, None)
            old.execute("create table mine (n integer)")
            for _ in range(0, PROCESSED, 100):
                held = await driver.reserve(["q0"], NOW, LEASE, 100)
                assert await driver.settle([Ack(each.lease) for each in held], NOW) == [None] * 100
            start = driver._reserving._scan_start
            floors = start._place
            assert floors is not None
            above, all_of_it = pages(address, floors), pages(address, None)
            assert all_of_it > before + PROCESSED // 20, "nothing had to be stepped over: this test sees nothing"
            assert above < before + 500, (before, above, all_of_it)

            # From the place on the order is that of the queue; a scan from the head finds what joined before it.
            await driver.enqueue([JobRecord(id="urgent", type="work", queue="q0", priority=9)], NOW)
            start._until = asyncio.get_running_loop().time() + 60
            (next_one,) = await driver.reserve(["q0"], NOW, LEASE, 1)
            assert next_one.job.id == f"r{3 * PROCESSED + 3:09d}"
            start._until = 0.0
            (found,) = await driver.reserve(["q0"], NOW, LEASE, 1)
            assert found.job.id == "urgent"

            # Nothing from the place on: the scan from the head comes at once. It finds ended leases as well.
            await driver.enqueue([JobRecord(id="below", type="work", queue="q0", priority=9)], NOW)
            start._place, start._until = f'{{"=q0": [0, {2 * TICKS}, 0]}}', 10.0**12
            assert [each.job.id for each in await driver.reserve(["q0"], NOW, LEASE, 1)] == ["below"]
            start._place, start._until = None, 0.0
            late = await driver.reserve(["q0"], NOW + LEASE, LEASE, 5000)
            assert {"urgent", "below"} <= {each.job.id for each in late}
            old.rollback()
        await driver.close()

    asyncio.run(scenario())
