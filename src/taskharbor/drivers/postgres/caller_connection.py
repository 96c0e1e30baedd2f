"""Checks that the caller's connection leads to the database that holds the jobs.

Both connections are asked once in a process what identifies their database; the first time also makes sure that the
schema exists. So a statement that cannot succeed never reaches the caller's transaction, which the server would abort.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.connections import in_transaction, in_transaction_async, run, run_sync
from taskharbor.drivers.postgres import schema
from taskharbor.drivers.postgres.deadline import Deadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import connect_arguments
from taskharbor.drivers.postgres.tries import not_opened
from taskharbor.model.errors import WrongConnection

if TYPE_CHECKING:
    import psycopg

OPEN_S = 10.0  # for everything that is done on a connection of our own

_NAMES = (
    "select oid, datname, exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on "
    "n.oid = c.relnamespace where n.nspname = cast(? as text) and c.relname = 'meta') "
    "from pg_catalog.pg_database where datname = current_database()"
)
# Not every role may call it. A dump that was restored on another server has the same names and perhaps the same oids.
_SYSTEM = "select system_identifier from pg_catalog.pg_control_system()"


# PostgreSQL refuses to prepare a transaction that notifies: without a hint the job is found a second later.
_NO_HINTS = "select set_config('taskharbor.hints', 'off', true)"


class DatabaseIdentity(NamedTuple):
    """What identifies a database."""

    oid: int
    name: str
    has_schema: bool
    system: int | None  # of the server and its copies

    def is_other_than(self, other: DatabaseIdentity) -> bool:
        apart = self.system is not None and other.system is not None and self.system != other.system
        return apart or self.oid != other.oid or self.name != other.name


_ours: dict[tuple[str, str], DatabaseIdentity] = {}  # address and schema → the database behind them
_known: weakref.WeakKeyDictionary[Any, set[tuple[str, str]]] = weakref.WeakKeyDictionary()  # the caller's connections


async def check(connection: Any, options: PostgresOptions) -> None:
    """WrongConnection if a job on this asynchronous connection would go to another database, or would not be stored
    together with the caller's writes."""
    inner = await in_transaction_async(connection)
    if _is_two_phase(inner):
        await run(connection, _NO_HINTS, ())
    if _is_known(inner, options):
        return
    before = _ours.get(_key(options))
    ours = before or await open_once(options)
    theirs = await _identify(connection, options.schema)
    if before is not None and (theirs.is_other_than(ours) or not theirs.has_schema):
        ours = await open_once(options)  # it may have been upgraded, dropped or moved since
    _note(inner, options, theirs, ours)


def check_sync(connection: Any, options: PostgresOptions) -> None:
    """The same for a synchronous connection."""
    inner = in_transaction(connection)
    if _is_two_phase(inner):
        run_sync(connection, _NO_HINTS, ())
    if _is_known(inner, options):
        return
    before = _ours.get(_key(options))
    ours = before or _open_once_sync(options)
    theirs = _identify_sync(connection, options.schema)
    if before is not None and (theirs.is_other_than(ours) or not theirs.has_schema):
        ours = _open_once_sync(options)
    _note(inner, options, theirs, ours)


def _is_two_phase(inner: Any) -> bool:
    """Whether the transaction was begun with psycopg's tpc_begin(), also by SQLAlchemy."""
    return getattr(inner, "_tpc", None) is not None


def _key(options: PostgresOptions) -> tuple[str, str]:
    return options.address, options.schema


def _is_known(inner: Any, options: PostgresOptions) -> bool:
    if getattr(inner, "store", None) == options.address:  # ctx.transaction() made it
        return True
    try:
        return _key(options) in _known.get(inner, ())
    except TypeError:  # a library whose connections cannot be weakly referenced: asked each time
        return False


def _note(inner: Any, options: PostgresOptions, theirs: DatabaseIdentity, ours: DatabaseIdentity) -> None:
    if theirs.is_other_than(ours):
        same = theirs[:2] == ours[:2]
        where = "on another server than the jobs" if same else f"but the jobs are kept in {ours.name!r}"
        raise WrongConnection(
            f"the connection is to the database {theirs.name!r}, {where}: one transaction "
            "cannot hold both; give a connection to the harbor's own database, or leave connection= out"
        )
    try:
        _known.setdefault(inner, set()).add(_key(options))
    except TypeError:
        pass


# The caller's side. A savepoint: what fails here must not abort the caller's transaction.


async def _identify(connection: Any, schema: str) -> DatabaseIdentity:
    oid, name, has_schema = (await run(connection, _NAMES, (schema,)))[0]
    await run(connection, "savepoint taskharbor_identify", ())
    try:
        system = (await run(connection, _SYSTEM, ()))[0][0]
    except Exception:
        system = None
        await run(connection, "rollback to savepoint taskharbor_identify", ())
    await run(connection, "release savepoint taskharbor_identify", ())
    return DatabaseIdentity(oid, name, has_schema, system)


def _identify_sync(connection: Any, schema: str) -> DatabaseIdentity:
    oid, name, has_schema = run_sync(connection, _NAMES, (schema,))[0]
    run_sync(connection, "savepoint taskharbor_identify", ())
    try:
        system = run_sync(connection, _SYSTEM, ())[0][0]
    except Exception:
        system = None
        run_sync(connection, "rollback to savepoint taskharbor_identify", ())
    run_sync(connection, "release savepoint taskharbor_identify", ())
    return DatabaseIdentity(oid, name, has_schema, system)


# Our side


async def open_once(options: PostgresOptions) -> DatabaseIdentity:
    """Open the store on a connection of our own, and create its schema if the DSN says so."""
    import psycopg

    try:
        async with asyncio.timeout(OPEN_S):
            connection = await psycopg.AsyncConnection.connect(**connect_arguments(options))
        try:
            with Deadline(OPEN_S, connection):
                await schema.check_server(connection)
                found = await schema.found_in(connection, options.schema)
                await schema.ensure(connection, options, found, options.migrate)
                ours = await _ours_of(connection, options.schema)
        finally:
            await connection.close()
    except (psycopg.Error, TimeoutError, OSError) as error:
        raise not_opened(options, error) from error
    _ours[_key(options)] = ours
    return ours


async def _ours_of(connection: psycopg.AsyncConnection[Any], schema: str) -> DatabaseIdentity:
    import psycopg

    row = await (await connection.execute(_NAMES.replace("?", "%s").encode(), (schema,))).fetchone()
    assert row is not None
    try:
        found = await (await connection.execute(_SYSTEM)).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        found = None
    return DatabaseIdentity(row[0], row[1], row[2], found[0] if found is not None else None)


def _open_once_sync(options: PostgresOptions) -> DatabaseIdentity:
    """The same in a thread: this one may be an event loop's."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(open_once(options))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="taskharbor-postgres-open", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return _ours[_key(options)]
