"""The schema: what has to be there, how it gets there, and whether this server will do.

Migrations are numbered files, each applied once; functions are created again with each. All of it is one transaction
under one advisory lock: twenty processes that start at once do it once, and one that is killed leaves nothing.
"""

from __future__ import annotations

import hashlib
import logging
from importlib import resources
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.postgres.options import Options
from taskharbor.drivers.postgres.statement import quoted
from taskharbor.model.errors import DriverError, StoreMissing

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("taskharbor.drivers.postgres")

VERSION = 1
OLDEST_SERVER = 150000

_told: set[tuple[object, ...]] = set()  # a program opens many drivers on one database: it is warned once


def sources(folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder with their names, in order."""
    found = resources.files(__package__).joinpath("sql", folder)
    return sorted((file.name, file.read_text("utf-8")) for file in found.iterdir() if file.name.endswith(".sql"))


async def check_server(connection: psycopg.AsyncConnection[Any]) -> None:
    """DriverError if the server will not do, a warning if it keeps less than it promises."""
    cursor = await connection.execute(
        "select cast(current_setting('server_version_num') as integer), pg_is_in_recovery(), "
        "current_setting('synchronous_commit'), current_setting('fsync'), current_setting('server_encoding')"
    )
    row = await cursor.fetchone()
    assert row is not None
    number, standby, synchronous, fsync, encoding = row
    if number < OLDEST_SERVER:
        raise DriverError(f"expected PostgreSQL 15 or later, got {number // 10000}; upgrade the server")
    if standby:
        raise DriverError(
            "this server is a standby and takes no writes; give the primary's address, or all of them with "
            "target_session_attrs=primary"
        )
    if encoding != "UTF8":
        raise DriverError(f"expected a database with the encoding UTF8, got {encoding}; create one with it")
    for name, value in (("synchronous_commit", synchronous), ("fsync", fsync)):
        if value == "off":
            _warn_once(connection, name)


def _warn_once(connection: psycopg.AsyncConnection[Any], name: str) -> None:
    what = (connection.info.host, connection.info.port, connection.info.dbname, name)
    if what not in _told:
        _told.add(what)
        log.warning(
            "%s is off on this server: jobs that were acknowledged can be lost when it crashes; turn it on for "
            "this role or database",
            name,
        )


async def ensure(connection: psycopg.AsyncConnection[Any], options: Options, found: int, mode: str) -> None:
    """Create the schema in an empty store; upgrade it if the mode (see Options.migrate) allows that; else it has to
    fit."""
    if found == VERSION:
        return
    if found > VERSION:
        raise DriverError(
            f"the schema {options.schema!r} has version {found}, this program knows {VERSION}; upgrade taskharbor "
            "(a newer one ran `taskharbor migrate`)"
        )
    if not found and mode == "manual":
        raise StoreMissing(f"there is no schema {options.schema!r} with our tables yet; run `taskharbor migrate`")
    if found and mode != "auto":
        what = f"has version {found}, this program needs {VERSION}"
        raise DriverError(f"the schema {options.schema!r} {what}; run `taskharbor migrate`")
    await migrate(connection, options)


async def version_of(connection: psycopg.AsyncConnection[Any], schema: str) -> int:
    """The version of the schema, 0 if there is none."""
    # Not to_regclass, which answers from a cache that may be older than the lock we have just waited for.
    cursor = await connection.execute(
        "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'meta'",
        (schema,),
    )
    if await cursor.fetchone() is None:
        return 0
    cursor = await connection.execute(f"select max(version) from {quoted(schema)}.meta".encode())
    row = await cursor.fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


async def migrate(connection: psycopg.AsyncConnection[Any], options: Options) -> int:
    """Bring the schema to this program's version; answers which it had."""
    schema = options.schema
    lock = int.from_bytes(hashlib.sha256(schema.encode()).digest()[:4], "big", signed=True)
    async with connection.transaction():
        await connection.execute("set transaction isolation level read committed")  # to see what the lock waited for
        await connection.execute("set local statement_timeout = 0")
        await connection.execute("select pg_advisory_xact_lock(1952540007, %s)", (lock,))
        found = await version_of(connection, schema)
        if found >= VERSION:
            return found
        if not found:
            cursor = await connection.execute("select 1 from pg_namespace where nspname = %s", (schema,))
            if await cursor.fetchone() is None:
                await connection.execute(f"create schema {quoted(schema)}".encode())
        for text in statements(schema, found):
            await connection.execute(text.encode())
    return found


def statements(schema: str, found: int) -> list[str]:
    """What brings a schema from a version to this one, inside a transaction."""
    return [
        f"set local search_path = {quoted(schema)}, pg_temp",
        "set local check_function_bodies = off",
        *(text.replace("@schema@", quoted(schema)) for name, text in sources("migrations") if int(name[:4]) > found),
        *(text.replace("@schema@", quoted(schema)) for _, text in sources("functions")),
        f"insert into meta (version) values ({VERSION})",
    ]


def script(schema: str, found: int) -> str:
    """The same as a script for psql, for whoever may not let a program change a schema."""
    if found >= VERSION:
        return ""
    made = [f"create schema if not exists {quoted(schema)}"] if not found else []
    parts = [text.strip().removesuffix(";") for text in ("begin", *made, *statements(schema, found), "commit")]
    return "".join(f"{text};\n" for text in parts)
