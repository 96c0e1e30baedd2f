"""What other tools do to a store: a renamed schema, a role without the usual grants, backends that hang."""

import asyncio
import os
import signal
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, BackendUnavailable, DriverError, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from taskharbor.drivers.postgres.options import parse
from taskharbor.drivers.postgres.tries import unavailable
from tests.drivers.postgres_stores import opened, store_test
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")


@pytest.fixture
def address():
    server = postgres.shared()
    return server.address(server.store())


@pytest.mark.parametrize("beside", [False, True])
def test_a_renamed_schema_is_refused(address, beside):
    """Its functions go on with the old name: with the tables of another store, if there is one."""

    async def scenario() -> None:
        async with opened(address):
            pass
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("alter schema taskharbor rename to th_2025")
        if beside:
            async with opened(address):
                pass
        with pytest.raises(DriverError, match=r"'th_2025' was renamed or copied: its functions use .* taskharbor,"):
            await PostgresDriver(f"{address}?schema=th_2025").open()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("drop schema if exists taskharbor cascade")
            connection.execute("alter schema th_2025 rename to taskharbor")
        async with opened(address):
            pass

    asyncio.run(scenario())


@pytest.mark.parametrize(("made", "found"), [("off", "off"), ("off", "on"), ("on", "off"), ("on", "on")])
def test_a_schema_of_any_name_is_not_taken_for_a_renamed_one(address, made, found):
    """Whichever sessions quote all identifiers: those that make it, or those that find it."""

    async def scenario() -> None:
        for quotes in (made, found):
            setting = f"alter database %I set quote_all_identifiers = {quotes}"
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"do $$ begin execute format('{setting}', current_database()); end $$".encode())
            for name in ("taskharbor", "Jobs", "my%20jobs", "a%22b", "a,b", "table"):
                async with opened(f"{address}?schema={name}"):
                    pass

    asyncio.run(scenario())


def test_a_missing_grant_is_named(address):
    """Where functions are not PUBLIC, as some rules for databases demand."""
    role = f"bare_{address.rpartition('/')[2]}"

    async def scenario() -> None:
        async with opened(address):
            pass
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"create role {role} login")
            for grant in ("usage on schema", "all on all tables in schema", "all on all sequences in schema"):
                connection.execute(f"grant {grant} taskharbor to {role}")
            connection.execute("revoke execute on all functions in schema taskharbor from public")
        async with opened(address.replace("harbor@", f"{role}@")) as (driver,):
            now = await driver.server_time()
            with pytest.raises(DriverError, match=r"permission denied for function \w+; grant it to this role"):
                await driver.reserve(["default"], now, timedelta(seconds=6), 1)
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute(f"grant execute on all functions in schema taskharbor to {role}")
            assert await driver.reserve(["default"], now, timedelta(seconds=6), 1) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.errors.ReadOnlySqlTransaction, "refused"),
        (psycopg.errors.ObjectNotInPrerequisiteState, "refused"),
        (psycopg.errors.ProtocolViolation, "refused"),  # pgbouncer with statement pooling
        (psycopg.errors.TooManyConnections, "refused"),
        (psycopg.errors.AdminShutdown, "did not answer"),
        (psycopg.OperationalError, "did not answer"),
    ],
)
def test_a_server_that_answers_is_not_one_that_did_not(error, words):
    assert str(unavailable(parse("postgresql://h/d"), error("why"))) == f"PostgreSQL {words}: why"


@store_test()
async def test_a_settle_is_bounded_by_the_lease_when_backends_hang(address, driver):
    """Another outcome is not held up for half a minute by one that a frozen process has."""
    now = await driver.server_time()
    await driver.enqueue([JobRecord(id="a", type="t")], now)
    (held,) = await driver.reserve(["default"], now, timedelta(seconds=6), 1)
    ours = "select pid from pg_stat_activity where application_name = 'taskharbor' and datname = current_database()"
    pids = [row[0] for row in await driver._execute(ours)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(BackendUnavailable, match="within 2 s"):
            await driver.settle([Ack(held.lease)], now)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert await driver.settle([Ack(held.lease)], now) == [None]
