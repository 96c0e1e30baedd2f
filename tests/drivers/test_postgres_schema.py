"""Opening a store: what is created, by which role, how often, and what is refused with which message."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import psycopg
import pytest

from taskharbor.drivers import (
    Ack,
    BackendUnavailable,
    DriverError,
    Enqueued,
    JobRecord,
    Lease,
    ScheduleChange,
    StoredSchedule,
)
from taskharbor.drivers.postgres import PostgresDriver, schema, statement
from taskharbor.drivers.postgres.options import parse
from tests import lanes
from tests.drivers.postgres_stores import opened
from tests.servers import postgres
from tests.servers.ports import free_port

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


@pytest.fixture
def address():
    return postgres.shared().address(postgres.shared().database())


async def opened_and_used(dsn: str) -> None:
    async with opened(dsn) as (driver,):
        assert await driver.enqueue([JobRecord(id="a", type="work")], NOW) == [Enqueued("a", False)]
        (held,) = await driver.reserve(["default"], NOW, timedelta(seconds=9), 1)
        assert await driver.settle([Ack(held.lease)], NOW) == [None]
        row = StoredSchedule(name="s", queue="default", revision="1", next_at=NOW)
        added, gone = ScheduleChange(name="s", expect=None, to=row), ScheduleChange(name="s", expect="1", to=None)
        assert await driver.change_schedules([added], NOW) == [True]
        assert (await driver.due_schedules(["default"], NOW)).items == (await driver.schedules()).items == (row,)
        assert await driver.change_schedules([gone], NOW) == [True]


@pytest.mark.parametrize("name", ["jobs", 'quo"ted; drop', "Ünïcode %s ?", "x" * 63])
def test_any_schema_name(address, name):
    from urllib.parse import quote

    asyncio.run(opened_and_used(f"{address}?schema={quote(name)}"))


def test_older_and_newer(address):
    asyncio.run(opened_and_used(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("update taskharbor.meta set version = 0, oldest = 0")
    with pytest.raises(DriverError, match="taskharbor migrate"):
        asyncio.run(opened_and_used(f"{address}?migrate=manual"))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("update taskharbor.meta set version = 9, oldest = 8")
    words = (
        r"is number 9, for programs that know number 8 or later; this version .* knows 1\. .* upgrade TaskHarbor here"
    )
    with pytest.raises(DriverError, match=words):
        asyncio.run(opened_and_used(address))


def test_an_older_one_is_refused_or_upgraded(address, monkeypatch):
    asyncio.run(opened_and_used(address))
    monkeypatch.setattr(statement, "VERSION", statement.VERSION + 1)
    for query in ("", "?migrate=create", "?migrate=manual"):
        with pytest.raises(
            DriverError, match=r"is number 1, this version of TaskHarbor needs 2\. Run `taskharbor migrate`"
        ):
            asyncio.run(PostgresDriver(address + query).open())
    asyncio.run(finds(f"{address}?migrate=auto"))
    with psycopg.connect(address) as connection:
        assert connection.execute("select version from taskharbor.meta order by 1").fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(("number", "oldest"), [(1, 1), (4, 1), (4, 4)])
def test_one_of_an_unreleased_version_is_refused(address, number, oldest):
    """Its numbers mean other tables. It is known by a `meta` without a primary key."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create schema taskharbor")
        connection.execute("create table taskharbor.meta (version integer not null, oldest integer not null)")
        connection.execute("insert into taskharbor.meta values (%s, %s)", (number, oldest))
    words = (
        r"'taskharbor' was made by an unreleased version before 0\.2\.0, expected number 1 of a release; .* drop it, or"
    )
    for query in ("", "?migrate=auto", "?migrate=manual"):
        with pytest.raises(DriverError, match=words) as raised:
            asyncio.run(PostgresDriver(address + query).open())
        assert not isinstance(raised.value, BackendUnavailable)
    with pytest.raises(DriverError, match=words):
        asyncio.run(PostgresDriver(address).migrate())


def test_a_table_meta_of_another_program_costs_nobody_a_schema(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("create table public.meta (key text, value text)")
    with pytest.raises(DriverError, match="'public' cannot be used: column \"version\" does not exist"):
        asyncio.run(PostgresDriver(f"{address}?schema=public").open())


OUTAGES = ("08006", "40P01", "53300", "55P03", "57P01", "57014", "58030")


@pytest.mark.parametrize("code", [*OUTAGES, "55000"])
def test_only_what_may_be_over_soon_is_an_outage(address, code):
    """A worker waits for a store that is away, and would wait for ever for one that refuses for good."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "create function refuse() returns event_trigger language plpgsql as $$"
            f"begin raise exception 'no tables on Mondays' using errcode = '{code}'; end $$".encode()
        )
        connection.execute("create event trigger refuse on ddl_command_end execute function refuse()")
    refused = "no tables on Mondays" if code in OUTAGES else "'taskharbor' cannot be used: no tables on Mondays"
    with pytest.raises(DriverError, match=refused) as raised:
        asyncio.run(PostgresDriver(address).open())
    assert isinstance(raised.value, BackendUnavailable) is (code in OUTAGES)


def test_manual_creates_nothing(address):
    with pytest.raises(DriverError, match="taskharbor migrate"):
        asyncio.run(opened_and_used(f"{address}?migrate=manual"))
    assert asyncio.run(PostgresDriver(f"{address}?migrate=manual").migrate()) == 0
    assert asyncio.run(PostgresDriver(address).migrate()) == statement.VERSION
    asyncio.run(opened_and_used(f"{address}?migrate=manual"))


CHILD = """
import asyncio, sys
from taskharbor.drivers.postgres import PostgresDriver
async def main():
    driver = PostgresDriver(sys.argv[1])
    await driver.open()
    print(len(await driver.queues()), flush=True)
    await driver.close()
asyncio.run(main())
"""


@pytest.mark.left_to("full", except_for=lanes.Chosen("read committed"))
@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_many_processes_at_once(address, isolation):
    """One of them is killed at once, somewhere in the middle; the others find one whole schema."""
    with psycopg.connect(address, autocommit=True) as connection:
        setting = f"alter database {connection.info.dbname} set default_transaction_isolation = '{isolation}'"
        connection.execute(setting.encode())
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(lanes.figure(test=8, full=20))
    ]
    os.kill(children[0].pid, signal.SIGKILL)
    for child in children[1:]:
        out, err = child.communicate(timeout=60)
        assert (out, child.returncode) == (b"0\n", 0), err.decode()
    children[0].communicate(timeout=60)
    with psycopg.connect(address) as connection:
        assert connection.execute("select count(*) from taskharbor.meta").fetchone() == (1,)


def test_killed_in_the_middle_leaves_nothing(address):
    """The server process that carries a migration dies: nothing of it is there, and the next one does it."""

    async def half() -> None:
        options = parse(address)
        connection = await psycopg.AsyncConnection.connect(address, autocommit=True)

        async def cut() -> None:
            async with connection.transaction():
                await schema.migrate(connection, options)
                with psycopg.connect(address, autocommit=True) as other:
                    other.execute("select pg_terminate_backend(%s)", (connection.info.backend_pid,))
                await connection.execute("select 1")

        with pytest.raises(psycopg.OperationalError):
            await cut()
        await connection.close()

    asyncio.run(half())
    asyncio.run(opened_and_used(address))


def test_a_role_without_ddl(address):
    asyncio.run(opened_and_used(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("drop role if exists worker")
        connection.execute("create role worker login")
        connection.execute("revoke create on schema public from public")
        connection.execute("grant usage on schema taskharbor to worker")
        connection.execute("grant select, insert, update, delete on all tables in schema taskharbor to worker")
        connection.execute("grant usage on all sequences in schema taskharbor to worker")
        connection.execute("delete from taskharbor.history")
    asyncio.run(opened_and_used(address.replace("harbor@", "worker@")))


DIGESTS: dict[int, str] = {}  # of the numbers that were released: 0.2.0 adds the first


def test_the_functions_belong_to_their_version():
    """A store has the functions of the version it was migrated to, so other functions are another version."""
    found = hashlib.sha256()
    for folder in ("migrations", "functions"):
        for name, text in schema.sources(folder):
            found.update(f"{name}\n{text}".encode())
    is_released = version("taskharbor") != "0.1.0"  # which was never published
    if is_released or statement.VERSION in DIGESTS:
        assert DIGESTS.get(statement.VERSION) == found.hexdigest(), (
            "the SQL has changed since a release: raise statement.VERSION. For a release: add its digest here"
        )


def test_a_standby_is_refused_until_it_is_promoted():
    """A real one: a copy that follows its primary. Promoted, it is a primary like any other."""
    primary = postgres.Server()
    try:
        name = primary.database()
        asyncio.run(opened_and_used(primary.address(name)))
        standby = postgres.Server(of=primary)
        try:
            with pytest.raises(DriverError, match=r"is a standby and takes no writes; give the primary's address"):
                asyncio.run(opened_and_used(standby.address(name)))
            both = f"postgresql://harbor@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{name}"
            asyncio.run(finds(f"{both}?target_session_attrs=primary"))
            with psycopg.connect(standby.address(name), autocommit=True) as connection:
                connection.execute("select pg_promote()")
            asyncio.run(finds(standby.address(name)))
        finally:
            standby.stop()
    finally:
        primary.stop()


async def finds(dsn: str) -> None:
    async with opened(dsn) as (driver,):
        assert (await driver.inspect("a", NOW)).state == "done"
        assert await driver.cancel(["nobody"], NOW) != [None]


@pytest.mark.parametrize(
    ("number", "standby", "encoding", "words"),
    [
        (140009, False, "UTF8", "expected PostgreSQL 15 or later, got 14"),
        (150000, True, "UTF8", "is a standby"),
        (160002, False, "LATIN1", "expected a database with the encoding UTF8, got LATIN1"),
        (180000, False, "UTF8", ""),
    ],
)
def test_servers_that_cannot_be_used(number, standby, encoding, words):
    """The reply of a server of another version, which is not installed here."""

    class Said:
        async def execute(self, query: str) -> "Said":
            return self

        async def fetchone(self) -> tuple[object, ...]:
            return (number, standby, "on", "on", encoding)

    found: Any = Said()
    if words:
        with pytest.raises(DriverError, match=words):
            asyncio.run(schema.check_server(found))
    else:
        asyncio.run(schema.check_server(found))


def test_refused_writes_are_reported_as_unavailable(address):
    """A primary that became a standby under us, or a role that may only read: the store is away, not broken."""
    asyncio.run(opened_and_used(address))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"alter database {connection.info.dbname} set default_transaction_read_only = on".encode())

    async def refused() -> None:
        async with opened(address) as (driver,):
            with pytest.raises(BackendUnavailable, match="read-only transaction"):
                await driver.enqueue([JobRecord(id="b", type="work")], NOW)

    asyncio.run(refused())


def test_a_strict_default_isolation_affects_neither_us_nor_handlers(address):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            f"alter database {connection.info.dbname} set default_transaction_isolation = 'serializable'"
        )

    async def scenario() -> tuple[str, str]:
        async with opened(address) as (driver,):
            ((ours,),) = await driver._execute("show transaction_isolation")
            shared = driver.transaction(Lease("a", "default", "t", NOW))
            async with shared as connection:
                (handlers,) = await (await connection.execute("show transaction_isolation")).fetchone() or ("",)
            await shared.rollback()
            return ours, handlers

    assert asyncio.run(scenario()) == ("read committed", "read committed")


def test_warnings_at_start_up(address, caplog):
    with psycopg.connect(address, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set synchronous_commit = off".encode())

    async def open_two() -> None:
        async with opened(address, 2):  # a program opens many drivers, and is warned once
            pass

    asyncio.run(open_two())
    assert sum("synchronous_commit is off" in record.getMessage() for record in caplog.records) == 1


def test_a_missing_server_is_reported_at_once_without_the_password():
    async def tried() -> None:
        await PostgresDriver(f"postgresql://ada:s3cretword@127.0.0.1:{free_port()}/db").open()

    with pytest.raises(BackendUnavailable) as raised:
        asyncio.run(tried())
    assert raised.value.__cause__ is not None
    error: BaseException | None = raised.value
    while error is not None:
        assert "s3cretword" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__
    assert "s3cretword" not in repr(PostgresDriver("postgresql://ada:s3cretword@h/db"))


@pytest.mark.parametrize(
    "query",
    ["schema=", "schema=pg_x", "migrate=never", "pool_size=0", "pool_size=x", "pgbouncer=yes", "nonsense=1",
     "retention=soon", "max_payload=-1", "options=-csearch_path"],
)  # fmt: skip
def test_options_that_make_no_sense(query):
    with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
        parse(f"postgresql://localhost/db?{query}")
