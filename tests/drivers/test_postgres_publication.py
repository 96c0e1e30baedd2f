"""A database whose tables are all published (Debezium, AWS DMS, upgrades by logical replication).

PostgreSQL refuses to update or delete rows of a published table by which a subscriber could not find them again: each
table needs a primary key, or another replica identity.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, Fail, JobRecord, Outcome, Retry
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.postgres_newer_schema import be_newer
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
LEASE = timedelta(seconds=60)
UNIDENTIFIED = """
select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'taskharbor' and c.relkind in ('r', 'p') and c.relpersistence = 'p'
  and not exists (select from pg_index i where i.indrelid = c.oid
                  and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end)
"""


@pytest.fixture
def address():
    made = postgres.shared().address(postgres.shared().database())
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("create publication everything for all tables")
    return made


async def life(dsn: str, name: str) -> None:
    """Jobs that are stored, run, retried, dead, requeued, cancelled, deleted and pruned."""
    driver = PostgresDriver(dsn)
    await driver.open()
    try:
        ids = [f"{name}{n}" for n in range(3)]
        await driver.enqueue([JobRecord(id=id, type="t", queue=name, group="g", group_limit=3) for id in ids], NOW)
        first, second, third = await driver.reserve([name], NOW, LEASE, 3, "w")
        await driver.extend([first.lease], NOW, LEASE * 2)
        outcomes: list[Outcome] = [Ack(first.lease), Retry(second.lease, None, 1), Fail(third.lease, "no", 1, NOW)]
        assert await driver.settle(outcomes, NOW) == [None] * 3
        assert await driver.requeue([third.job.id], NOW) == [None]
        assert await driver.cancel([third.job.id], NOW) == [None]
        assert await driver.delete([second.job.id]) == [None]
        await driver.pause(name)
        await driver.resume(name)
        assert await driver.prune(NOW + LEASE, 10) == 2
        assert await driver.counts(NOW) == {}
    finally:
        await driver.close()


def test_the_schema_is_created_and_jobs_live_in_it(address):
    asyncio.run(life(address, "q"))


@pytest.mark.parametrize("alone", [False, True], ids=["older programs go on", "newer programs only"])
def test_the_schema_is_upgraded(address, alone, monkeypatch):
    asyncio.run(life(address, "before"))
    be_newer(monkeypatch, alone=alone)
    asyncio.run(life(f"{address}?migrate=auto", "after"))


def test_every_table_has_a_replica_identity(address):
    asyncio.run(PostgresDriver(address).migrate())
    with psycopg.connect(address) as connection:
        assert connection.execute(UNIDENTIFIED).fetchall() == []
