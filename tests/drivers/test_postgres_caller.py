"""How applications use their own connections: pipelines, cursors of other kinds, two phases, very large calls."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, InvalidJob, JobRecord, State
from taskharbor.drivers.postgres import PostgresDriver, enqueue, pool
from tests.drivers.postgres_stores import emptied, opened, store_test
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=60)
JOBS = [JobRecord(id="a", type="t"), JobRecord(id="b", type="t", depends_on=("a",))]


def states(address):
    async def look():
        async with opened(address) as (driver,):
            return {each.job.id: each.state for each in (await driver.list(now=NOW)).items}

    return asyncio.run(look())


BOTH = {"a": State.READY, "b": State.BLOCKED}


@pytest.mark.parametrize("known", [False, True])
def test_in_pipeline_mode(known):
    address = emptied()
    driver = PostgresDriver(address)
    with psycopg.connect(address) as connection:
        if known:
            driver.enqueue_on_sync(connection, [JobRecord(id="before", type="t")], NOW)
            connection.rollback()
        with connection.pipeline():
            connection.execute("create temporary table mine (n integer)")
            assert [each.id for each in driver.enqueue_on_sync(connection, JOBS, NOW)] == ["a", "b"]
            connection.execute("insert into mine values (1)")
    assert states(address) == BOTH


def test_in_asynchronous_pipeline_mode():
    address = emptied()

    async def live():
        driver = PostgresDriver(address)
        async with await psycopg.AsyncConnection.connect(address) as connection, connection.pipeline():
            assert [each.id for each in await driver.enqueue_on(connection, JOBS, NOW)] == ["a", "b"]

    asyncio.run(live())
    assert states(address) == BOTH


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_with_cursors_of_another_kind(factory):
    address = emptied()
    with psycopg.connect(address, cursor_factory=factory) as connection:
        PostgresDriver(address).enqueue_on_sync(connection, JOBS, NOW)
    assert states(address) == BOTH


def test_a_two_phase_transaction_sends_no_hint():
    """PostgreSQL prepares no transaction that notifies: a waiting worker must not matter."""
    server = postgres.Server(max_prepared_transactions="5")
    try:
        address = server.address(server.database())

        async def live():
            async with opened(address) as (driver,):
                assert await driver.wait(["default"], 0.0) is False  # leaves its note
                with psycopg.connect(address) as connection:
                    connection.tpc_begin(connection.xid(1, "jobs", "1"))
                    driver.enqueue_on_sync(connection, JOBS, NOW)
                    connection.tpc_prepare()
                    connection.tpc_commit()
                assert len(await driver.reserve(["default"], NOW, LEASE, 5)) == 1

        asyncio.run(asyncio.wait_for(live(), 60))
        assert states(address) == BOTH | {"a": State.INFLIGHT}
    finally:
        server.stop()


@store_test()
async def test_a_call_that_is_too_large_is_refused(address, driver, monkeypatch):
    """One statement holds all of it, several times: it is refused before anything is sent."""
    monkeypatch.setattr(enqueue, "MAX_CALL_BYTES", 3 << 20)
    large = [JobRecord(id=f"j{n}", type="t", payload=b"x" * (1 << 20)) for n in range(4)]
    with pytest.raises(InvalidJob, match="payload: expected at most 3 MiB together in one call, got 4; use"):
        await driver.enqueue(large, NOW)
    assert len(await driver.enqueue(large[:3], NOW)) == 3


# Who waits leaves notes


def notes(address):
    with psycopg.connect(address) as connection:
        return (connection.execute("select count(*) from taskharbor.waiting").fetchone() or (0,))[0]


def test_a_closed_driver_leaves_no_waiter_behind():
    address = emptied()

    async def live():
        async with opened(address, 3) as drivers:
            for driver in drivers:
                await driver.wait(["one", "two"], 0.0)
            assert notes(address) == 6

    asyncio.run(live())
    assert notes(address) == 0


@store_test()
async def test_a_heartbeat_deletes_waiters_of_killed_processes(address, driver):
    from taskharbor.drivers import WorkerInfo

    await driver.wait(["one"], 0.0)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("insert into taskharbor.waiting values ('one', 'killed', now() - interval '1 hour')")
        connection.execute("update taskharbor.waiting set said_at = now() - interval '2 minutes' "
                           "where waiter <> 'killed'")  # fmt: skip
    await driver.wait(["one"], 0.0)  # and registers again
    await driver.beat(WorkerInfo("w", ("one",), 0, NOW), NOW)
    with psycopg.connect(address) as connection:
        query = "select count(*), bool_and(said_at > now() - interval '1 minute') from taskharbor.waiting"
        assert connection.execute(query).fetchone() == (1, True)


# A pooler that the DSN does not name


def test_behind_a_pooler_that_the_dsn_does_not_name(caplog):
    """Its sessions are shared: nothing of ours stays on them, and a statement prepared on another does not fail."""
    server = postgres.shared()
    name = server.database()
    pool.warn_of_pooler.cache_clear()

    async def live():
        async with opened(server.address(name, server.pgbouncer()), 4) as drivers:
            now = await drivers[0].server_time()

            async def work(number):
                driver = drivers[number]
                for turn in range(15):
                    spawn = (JobRecord(id=f"s{number} {turn}", type="t", queue="spawned"),)
                    await driver.enqueue([JobRecord(id=f"j{number} {turn}", type="t")], now)
                    for held in await driver.reserve(["default"], now, LEASE, 1):
                        assert await driver.settle([Ack(held.lease, None, spawn)], now) == [None]

            await asyncio.gather(*(work(number) for number in range(4)))
            assert (await drivers[0].counts(now))["default"] == {"done": 60}

    with caplog.at_level(logging.WARNING, "taskharbor.drivers.postgres"):
        asyncio.run(asyncio.wait_for(live(), 60))
    assert sum("pgbouncer=1" in record.getMessage() for record in caplog.records) == 1
    with psycopg.connect(server.address(name, server.pgbouncer()), autocommit=True, prepare_threshold=None) as other:
        for setting, usual in (("statement_timeout", "0"), ("jit", "on")):
            assert other.execute(f"show {setting}").fetchone() == (usual,)
        assert other.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
