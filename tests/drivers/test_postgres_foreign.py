"""What other tools do to a store: a renamed schema, a role without the usual grants, backends that hang."""

import asyncio
import os
import signal
import subprocess
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    DriverError,
    Fail,
    JobRecord,
    ScheduleChange,
    StoredSchedule,
)
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


def restore(address: str, copy: str, kind: str) -> None:
    """Copy a database by the server's own tools."""
    dump = [postgres.binary("pg_dump"), f"--format={kind}", f"--dbname={address}"]
    made = subprocess.run(dump, stdout=subprocess.PIPE, check=True).stdout
    programs = {
        "plain": [postgres.binary("psql"), "--quiet", "--set=ON_ERROR_STOP=1", copy],
        "custom": [postgres.binary("pg_restore"), f"--dbname={copy}"],
    }
    subprocess.run(programs[kind], input=made, stdout=subprocess.DEVNULL, check=True)


@pytest.mark.parametrize("kind", ["plain", pytest.param("custom", marks=pytest.mark.left_to("full"))])
@store_test()
async def test_a_restored_dump_goes_on(address, driver, kind):
    """With every state, key, group, flow and schedule; and with the leases, whose workers may settle them there."""
    now = await driver.server_time()
    jobs = [JobRecord(id=each, type="t", idempotency_key=each, group=f"g{each}") for each in "abcd"]
    later = JobRecord(id="later", type="t", run_at=now + timedelta(hours=1))
    behind = JobRecord(id="behind", type="t", flow_id="f", depends_on=("a",))
    await driver.enqueue([*jobs, later, behind], now)
    await driver.change_schedules(
        [
            ScheduleChange(
                name="s", expect=None, to=StoredSchedule(name="s", queue="default", revision="1", next_at=now)
            )
        ],
        now,
    )
    held = {each.job.id: each.lease for each in await driver.reserve(["default"], now, timedelta(hours=1), 3)}
    assert held.keys() == {"a", "b", "c"}
    assert await driver.settle([Fail(held["b"], "no use", 1, now)], now) == [None]
    assert await driver.settle([Ack(held["c"])], now) == [None]
    before = await driver.counts(now)

    copy = address.rpartition("/")[0] + "/" + postgres.shared().database()
    await asyncio.to_thread(restore, address, copy, kind)
    async with opened(copy) as (there,):
        assert await there.counts(now) == before
        assert [each.existed for each in await there.enqueue(jobs, now)] == [True] * 4
        assert [each.name for each in (await there.due_schedules(["default"], now)).items] == ["s"]
        assert await there.settle([Ack(held["a"])], now) == [None]
        await there.enqueue([JobRecord(id="new", type="t")], now)
        after = now + timedelta(hours=2)
        found = await there.reserve(["default"], after, timedelta(hours=1), 10)
        assert {each.job.id for each in found} == {"d", "later", "behind", "new"}
        assert await there.settle([Ack(each.lease) for each in found], after) == [None] * 4


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


@pytest.mark.parametrize("spawned", [(), (JobRecord(id="next", type="t"),)])
@store_test()
async def test_a_settle_is_bounded_by_the_lease_when_backends_hang(address, driver, spawned):
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
            await driver.settle([Ack(held.lease, spawn=spawned)], now)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert await driver.settle([Ack(held.lease, spawn=spawned)], now) == [None]
    assert len((await driver.list(now=now)).items) == 1 + len(spawned)
