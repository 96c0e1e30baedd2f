"""The schema: what has to be there, how it gets there, and whether this server will do.

Migrations are numbered files, each applied once. All of it is one transaction under one advisory lock: twenty processes
that start at once do it once, and one that is killed leaves nothing.

Old and new programs use one schema side by side during a deploy. So beside its number a schema says which programs may
still use it: `oldest`, the lowest number that a program may have been written for. A migration that older programs can
live with (a new table, a column with a default, added to `jobs` and `history` alike) leaves `oldest` as it is; any
other one raises it, `update meta set oldest = …`, and is better split: first add, in a later version take away.

Functions have the number in their names (reserve_v1). Whatever changes in the SQL is another number, and the functions
that an older program calls stay as they were until `oldest` is above them.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.postgres import statement
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.statement import quoted
from taskharbor.model.errors import DriverError, StoreMissing

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("taskharbor.drivers.postgres")

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


class SchemaVersion(NamedTuple):
    """What a schema says of itself: its number (0: there is none), and the oldest that may still use it."""

    version: int
    oldest: int

    @property
    def fits(self) -> bool:
        """Whether this program can use it as it is."""
        return self.oldest <= statement.VERSION <= self.version


async def ensure(
    connection: psycopg.AsyncConnection[Any], options: PostgresOptions, found: SchemaVersion, mode: str
) -> None:
    """Create the schema in an empty store; upgrade it if `mode` (`migrate` in options.py) allows it; else it has to
    fit."""
    if found.fits:
        return
    if not found.version and mode == "manual":
        raise StoreMissing(f"there is no schema {options.schema!r} with our tables yet; run `taskharbor migrate`")
    told = f"the schema {options.schema!r} is number {found.version}"
    if found.oldest > statement.VERSION:
        raise DriverError(
            f"{told}, for programs that know number {found.oldest} or later; this version of TaskHarbor knows "
            f"{statement.VERSION}. It was upgraded by a newer version (`taskharbor migrate`): upgrade TaskHarbor here "
            "as well."
        )
    if found.version and mode != "auto":
        raise DriverError(
            f"{told}, this version of TaskHarbor needs {statement.VERSION}. Run `taskharbor migrate`, or open it with "
            "?migrate=auto."
        )
    await migrate(connection, options)


async def found_in(connection: psycopg.AsyncConnection[Any], schema: str) -> SchemaVersion:
    """What the schema says of itself."""
    # Not to_regclass, which answers from a cache that may be older than the lock we have just waited for.
    cursor = await connection.execute(
        "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'meta'",
        (schema,),
    )
    if await cursor.fetchone() is None:
        return SchemaVersion(0, 0)
    cursor = await connection.execute(f"select max(version), max(oldest) from {quoted(schema)}.meta".encode())
    version, oldest = await cursor.fetchone() or (None, None)
    return SchemaVersion(version or 0, oldest or 0)


async def migrate(connection: psycopg.AsyncConnection[Any], options: PostgresOptions) -> int:
    """Bring the schema to this program's version; answers which it had."""
    schema = options.schema
    lock = int.from_bytes(hashlib.sha256(schema.encode()).digest()[:4], "big", signed=True)
    async with connection.transaction():
        await connection.execute("set transaction isolation level read committed")  # to see what the lock waited for
        await connection.execute("set local statement_timeout = 0")
        await connection.execute("select pg_advisory_xact_lock(1952540007, %s)", (lock,))
        found, _ = await found_in(connection, schema)
        if found >= statement.VERSION:
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
    texts = [f"set local search_path = {quoted(schema)}, pg_temp", "set local check_function_bodies = off"]
    for number in range(found + 1, statement.VERSION + 1):
        texts += [text for name, text in sources("migrations") if int(name[:4]) == number]
        texts.append(f"insert into meta (version, oldest) select {number}, coalesce(max(oldest), 1) from meta")
    texts += [versioned(text) for _, text in sources("functions")]
    return [text.replace("@schema@", quoted(schema)) for text in (*texts, _DROP_OLD)]


# Functions that no program may call any more.
_DROP_OLD = """do $body$
declare
    old regprocedure;
begin
    for old in
        select p.oid::regprocedure from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname ~ '_v[0-9]+$'
          and substring(p.proname from '_v([0-9]+)$')::integer < (select max(m.oldest) from meta m)
    loop
        execute format('drop function %s', old);
    end loop;
end
$body$"""


def versioned(text: str) -> str:
    """Functions as they are named in the schema: where they are created, and where one calls another."""
    return _calls().sub(rf"\1_v{statement.VERSION}", text)


@functools.cache
def _calls() -> re.Pattern[str]:
    names = {
        name for _, text in sources("functions") for name in re.findall(r"create or replace function (\w+)\(", text)
    }
    return re.compile(rf"(?<![\w.])({'|'.join(sorted(names))})(?=\()")


def script(schema: str, found: int) -> str:
    """The same as a script for psql, for whoever may not let a program change a schema."""
    if found >= statement.VERSION:
        return ""
    made = [f"create schema if not exists {quoted(schema)}"] if not found else []
    parts = [text.strip().removesuffix(";") for text in ("begin", *made, *statements(schema, found), "commit")]
    return "".join(f"{text};\n" for text in parts)
