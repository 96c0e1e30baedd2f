"""The schema: create it, migrate it, and check whether this server is usable.

Migrations are numbered files, each applied once. A migration is one transaction under one advisory lock: of twenty
processes that start at once, one migrates, and one that is killed leaves nothing behind.

Old and new programs use one schema side by side during a deploy. So beside its number a schema stores `oldest`: the
lowest number that a program may have been written for. A migration with which older programs still work (it adds a
table, an index, or a column with a default to both `jobs` and `history`) leaves `oldest` as it is. Any other migration
raises it (`update meta set oldest = …`), and is better split in two: add first, remove in a later version. Until 0.2.0,
the first release, nobody has a schema to upgrade: every change edits `0001`.

Functions and types have the number in their names (reserve_queue_v1). Any change of them in a release is a new number;
the functions that an older program calls stay as they were until `oldest` is above them. A schema that is created anew
has only the functions of its number, and says so in `oldest`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.base import DEPENDENCY_CANCELLED_REASON, MAX_FOLLOWED_JOBS
from taskharbor.drivers.postgres import statement
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.records import ACK, CANCEL, FAIL, RETRY, RefusalCode, StoredState
from taskharbor.drivers.postgres.statement import quoted
from taskharbor.drivers.slices import MAX_CHANGED_JOBS
from taskharbor.model.errors import DriverError, StoreMissing

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("taskharbor.drivers.postgres")

OLDEST_SERVER = 150000

_warned: set[tuple[object, ...]] = set()  # a program opens many drivers on one database: warn once


def sources(folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder and of the folders in it, with their names; types come before functions."""
    files = _files(resources.files(__package__).joinpath("sql", folder))
    return sorted(files, key=lambda file: ("create type" not in file[1], file[0]))


def _files(folder: Traversable) -> Iterator[tuple[str, str]]:
    for file in folder.iterdir():
        if file.is_dir():
            yield from _files(file)
        elif file.name.endswith(".sql"):
            yield file.name, file.read_text("utf-8")


async def check_server(connection: psycopg.AsyncConnection[Any]) -> None:
    """DriverError if the server cannot be used, a warning if it may lose what it has acknowledged."""
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
    if what not in _warned:
        _warned.add(what)
        log.warning(
            "%s is off on this server: jobs that were acknowledged can be lost when it crashes; turn it on for "
            "this role or database",
            name,
        )


class SchemaVersion(NamedTuple):
    """The number of a schema (0: there is none), and the oldest number whose programs may still use it."""

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
    what = f"the schema {options.schema!r} is number {found.version}"
    if found.oldest > statement.VERSION:
        raise DriverError(
            f"{what}, for programs that know number {found.oldest} or later; this version of TaskHarbor knows "
            f"{statement.VERSION}. It was upgraded by a newer version (`taskharbor migrate`): upgrade TaskHarbor here "
            "as well."
        )
    if found.version and mode != "auto":
        raise DriverError(
            f"{what}, this version of TaskHarbor needs {statement.VERSION}. Run `taskharbor migrate`, or open it with "
            "?migrate=auto."
        )
    await migrate(connection, options)


async def found_in(connection: psycopg.AsyncConnection[Any], schema: str) -> SchemaVersion:
    """The number of the schema in the database."""
    # Not to_regclass, which reads a cache that may be older than the lock we have just waited for.
    cursor = await connection.execute(
        "select c.relhasindex or not exists (select from pg_attribute where attrelid = c.oid and attname = 'oldest') "
        "from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = 'meta'",
        (schema,),
    )
    match await cursor.fetchone():
        case None:
            return SchemaVersion(0, 0)
        case (False,):  # ours, and without a primary key, which it has had since 0.2.0
            raise DriverError(
                f"the schema {schema!r} was made by an unreleased version before 0.2.0, expected number "
                f"{statement.VERSION} of a release; it cannot be upgraded: drop it, or give another name as ?schema="
            )
    cursor = await connection.execute(f"select max(version), max(oldest) from {quoted(schema)}.meta".encode())
    version, oldest = await cursor.fetchone() or (None, None)
    await _refuse_renamed(connection, schema)
    return SchemaVersion(version or 0, oldest or 0)


async def _refuse_renamed(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """DriverError if the schema had another name when it was created: its functions go on with the tables of that name,
    which are those of another store, or of none."""
    cursor = await connection.execute(
        "select c from pg_proc p join pg_namespace n on n.oid = p.pronamespace, unnest(p.proconfig) as c "
        "where n.nspname = %s and p.proname = %s and c like 'search_path=%%'",
        (schema, f"reserve_queue_v{statement.VERSION}"),
    )
    row = await cursor.fetchone()
    if row is not None and (made_for := _first_of(str(row[0]).removeprefix("search_path="))) != schema:
        raise DriverError(
            f"the schema {schema!r} was renamed or copied: its functions use the tables of {made_for}, expected those "
            f"of {schema!r}. Rename it back, or restore its tables into a schema that `taskharbor migrate` has made"
        )


def _first_of(search_path: str) -> str:
    """The first name in a search_path. Whether it is quoted there is up to the sessions that wrote it
    (quote_all_identifiers), and says nothing."""
    if (found := re.match(r'"((?:[^"]|"")*)"', search_path)) is not None:
        return found[1].replace('""', '"')
    return search_path.partition(",")[0]


async def migrate(connection: psycopg.AsyncConnection[Any], options: PostgresOptions) -> int:
    """Bring the schema to this program's number; returns the number it had."""
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
    """The statements that bring a schema from the number `found` (0: none) to this program's, inside a transaction."""
    texts = [
        f"set local search_path = {quoted(schema)}, pg_temp",
        "set local check_function_bodies = off",
        # Calls wait behind a migration that waits for a table: not for as long as an application's transaction is open.
        "set local lock_timeout = '5s'",
    ]
    at_least = 0 if found else statement.VERSION  # a new schema has the functions of its number only
    for number in range(found + 1, statement.VERSION + 1):
        texts += [text for name, text in sources("migrations") if int(name[:4]) == number]
        texts.append(f"insert into meta (version, oldest) select {number}, greatest(max(oldest), {at_least}) from meta")
    texts += [versioned(text) for _, text in sources("functions")]
    return [text.replace("@schema@", quoted(schema)) for text in (*texts, _DROP_OLD)]


# Functions and types that no program may use any more.
_DROP_OLD = """do $body$
declare
    oldest constant integer := (select max(m.oldest) from meta m);
    old text;
begin
    for old in
        select p.oid::regprocedure from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = current_schema() and p.proname ~ '_v[0-9]+$'
          and substring(p.proname from '_v([0-9]+)$')::integer < oldest
    loop
        execute format('drop function %s', old);
    end loop;
    for old in
        select t.oid::regtype from pg_type t join pg_namespace n on n.oid = t.typnamespace
        join pg_class c on c.oid = t.typrelid
        where n.nspname = current_schema() and c.relkind = 'c' and t.typname ~ '_v[0-9]+$'
          and substring(t.typname from '_v([0-9]+)$')::integer < oldest
    loop
        execute format('drop type %s', old);
    end loop;
end
$body$"""

# What has a name in the SQL files (`@leased@`): written into the functions as they are created. First the settings
# under which a function runs, whatever the session has. Each costs a call a little: a function has those it needs.
CONSTANTS: dict[str, int | str] = {
    "ours": "set search_path = @schema@, pg_temp set jit = off set enable_seqscan = off",
    "one_plan": "set plan_cache_mode = force_generic_plan",  # not planned anew: most calls take less time than planning
    # A planner whose statistics are old takes a table for small, and reads all of it for a bitmap, a sort or a hash.
    "in_index_order": "set enable_bitmapscan = off set enable_sort = off",
    "nested_loops": "set enable_hashjoin = off set enable_mergejoin = off",
    **{state.name.lower(): int(state) for state in StoredState},
    "ack": ACK,
    "retry": RETRY,
    "fail": FAIL,
    "cancel": CANCEL,
    "with_it": DEPENDENCY_CANCELLED_REASON,
    "most_followed": MAX_FOLLOWED_JOBS,
    "most_cancelled": MAX_CHANGED_JOBS,
    **{code.name.lower(): int(code) for code in RefusalCode},
}


def versioned(text: str) -> str:
    """A function as it is created: names of functions and types with the number, constants as numbers."""
    functions, types = _names()
    text = functions.sub(rf"\1_v{statement.VERSION}", text)
    text = types.sub(rf"\1_v{statement.VERSION}", text)
    return _CONSTANT.sub(lambda found: str(CONSTANTS[found[1]]), text)


_CONSTANT = re.compile(rf"@({'|'.join(CONSTANTS)})@")


@functools.cache
def _names() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for calls of our functions, and for uses of our types."""
    texts = [text for _, text in sources("functions")]
    functions = {name for text in texts for name in re.findall(r"create or replace function (\w+)\(", text)}
    types = {name for text in texts for name in re.findall(r"create type (\w+)", text)}
    return (
        re.compile(rf"(?<![\w.])({'|'.join(sorted(functions))})(?=\()"),
        re.compile(rf"(?<![\w.])({'|'.join(sorted(types))})(?![\w(])"),
    )


def script(schema: str, found: int) -> str:
    """The same as a script for psql, for databases in which a program may not change schemas."""
    if found >= statement.VERSION:
        return ""
    made = [f"create schema if not exists {quoted(schema)}"] if not found else []
    parts = [text.strip().removesuffix(";") for text in ("begin", *made, *statements(schema, found), "commit")]
    return "".join(f"{text};\n" for text in parts)
