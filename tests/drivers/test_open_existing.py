"""Opening a store to look at it: what is not there is not made, whatever stands in its place."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from taskharbor.drivers import DriverError, JobRecord, StoreMissing, open_driver
from taskharbor.drivers.postgres import statement
from taskharbor.drivers.sqlite import schema
from tests.servers import postgres


async def looked_at(dsn: str) -> dict[str, dict[str, int]]:
    driver = open_driver(dsn)
    try:
        await driver.open_existing()
        await driver.open_existing()
        return await driver.counts(await driver.server_time())
    finally:
        await driver.close()


async def made(dsn: str) -> None:
    driver = open_driver(dsn)
    await driver.open()
    try:
        await driver.enqueue([JobRecord(id="a", type="work")], await driver.server_time())
    finally:
        await driver.close()


def look(dsn: str) -> dict[str, dict[str, int]]:
    return asyncio.run(asyncio.wait_for(looked_at(dsn), 60))


# SQLite


def nothing(path: Path) -> None:
    pass


def an_empty_file(path: Path) -> None:
    path.touch()


def an_application_with_a_log(path: Path) -> None:
    an_application(path, "wal")


def an_application_without_a_log(path: Path) -> None:
    an_application(path, "delete")


def an_application(path: Path, journal: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.commit()


def an_older_store(path: Path) -> None:
    an_application(path, "wal")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE taskharbor_meta (version INTEGER, oldest INTEGER)")
        connection.execute("INSERT INTO taskharbor_meta VALUES (1, 1)")
        connection.commit()


def a_letter(path: Path) -> None:
    path.write_bytes(b"no database, but a letter that somebody put here. " * 100)


@pytest.mark.lane("sqlite")
@pytest.mark.parametrize(
    ("stands_there", "kind", "words"),
    [
        (nothing, StoreMissing, "taskharbor migrate"),
        (an_empty_file, StoreMissing, "taskharbor migrate"),
        (an_application_with_a_log, StoreMissing, "taskharbor migrate"),
        (an_application_without_a_log, StoreMissing, "taskharbor migrate"),
        (an_older_store, DriverError, "taskharbor migrate"),
        (a_letter, DriverError, "not an SQLite database"),
    ],
)
def test_a_file_is_left_as_it_is(tmp_path, monkeypatch, stands_there, kind, words):
    monkeypatch.setattr(schema, "SCHEMA", 2)
    path = tmp_path / "jobs ?#%.db"
    stands_there(path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(kind, match=words):
        look(f"sqlite:///{tmp_path}/jobs%20%3F%23%25.db?migrate=auto")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.lane("sqlite")
def test_a_file_that_holds_a_store_is_opened(tmp_path):
    dsn = f"sqlite:///{tmp_path}/jobs%20%3F%23%25.db"
    asyncio.run(made(dsn))
    assert look(dsn) == {"default": {"ready": 1}}


@pytest.mark.lane("unit")
def test_a_driver_that_creates_nothing_is_just_opened():
    assert look("memory://") == {}


# PostgreSQL


def catalog(address: str) -> list[Any]:
    """Everything in a database that is not the server's own."""
    with psycopg.connect(address) as connection:
        rows = connection.execute(
            "select 'schema', nspname, '' from pg_namespace where nspname !~ '^pg_' union all "
            "select 'table', n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' union all "
            "select 'function', n.nspname, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
            "where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' order by 1, 2, 3"
        ).fetchall()
        return list(rows)


@pytest.mark.lane("postgres")
@pytest.mark.parametrize("stands_there", ["nothing", "the name", "an older store"])
def test_a_database_is_left_as_it_is(monkeypatch, stands_there):
    address = postgres.shared().address(postgres.shared().database())
    with psycopg.connect(address, autocommit=True) as connection:
        if stands_there == "the name":
            connection.execute("create schema taskharbor")
        elif stands_there == "an older store":
            asyncio.run(made(address))
            monkeypatch.setattr(statement, "VERSION", statement.VERSION + 1)
    before = catalog(address)
    kind = DriverError if stands_there == "an older store" else StoreMissing
    with pytest.raises(kind, match="taskharbor migrate"):
        look(f"{address}?migrate=auto")
    assert catalog(address) == before


@pytest.mark.lane("postgres")
def test_a_database_that_holds_a_store_is_opened():
    address = postgres.shared().address(postgres.shared().database())
    asyncio.run(made(address))
    assert look(f"{address}?migrate=auto") == {"default": {"ready": 1}}


@pytest.mark.lane("postgres")
def test_a_role_that_may_not_create_the_schema_learns_what_to_run():
    server = postgres.shared()
    address = server.address(server.database())
    with psycopg.connect(address, autocommit=True) as connection:
        if not connection.execute("select 1 from pg_roles where rolname = 'guest'").fetchone():
            connection.execute("create role guest login")
    with pytest.raises(DriverError, match=r"permission denied .*run `taskharbor migrate` as a role that may create it"):
        asyncio.run(made(address.replace("harbor@", "guest@")))
    with pytest.raises(StoreMissing, match="taskharbor migrate"):
        look(address.replace("harbor@", "guest@"))
