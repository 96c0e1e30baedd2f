"""Checks that the caller's connection leads to the database that holds the jobs.

Both connections are asked once in a process what identifies their database; the first time also makes sure that the
schema exists. So a statement that cannot succeed never reaches the caller's transaction, which the server would abort.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from taskharbor.drivers.connections import Ask, asking, at_once, in_transaction, in_transaction_async, run
from taskharbor.drivers.postgres import schema
from taskharbor.drivers.postgres.deadline import Deadline, run_in_thread
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import connect_arguments
from taskharbor.drivers.postgres.tries import not_opened
from taskharbor.model.errors import WrongConnection

OPEN_S = 10.0  # for everything that is done on a connection of our own

_NAMES = (
    "select concat_ws(' ', current_user, inet_server_addr(), inet_server_port(), extract(epoch from "
    "pg_postmaster_start_time())), oid, datname, exists (select 1 from pg_catalog.pg_class c "
    "join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = cast(? as text) and c.relname = 'meta') "
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
_systems: dict[str, int | None] = {}  # a role on a server since its start → the system behind it
_known: weakref.WeakKeyDictionary[Any, set[tuple[str, str]]] = weakref.WeakKeyDictionary()  # the caller's connections


async def check(connection: Any, options: PostgresOptions) -> None:
    """WrongConnection if a job on this asynchronous connection would go to another database, or would not be stored
    together with the caller's writes."""
    await _check(await in_transaction_async(connection), partial(run, connection), options, open_once)


def check_sync(connection: Any, options: PostgresOptions) -> None:
    """The same for a synchronous connection."""
    at_once(_check(in_transaction(connection), asking(connection), options, _open_in_thread))


async def _check(
    inner: Any, ask: Ask, options: PostgresOptions, open_store: Callable[[PostgresOptions], Awaitable[DatabaseIdentity]]
) -> None:
    if _is_two_phase(inner):
        await ask(_NO_HINTS, ())
    if _is_known(inner, options):
        return
    before = _ours.get(_key(options))
    ours = before or await open_store(options)
    theirs = await _identify(ask, options.schema)
    if before is not None and (theirs.is_other_than(ours) or not theirs.has_schema):
        ours = await open_store(options)  # it may have been upgraded, dropped or moved since
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


async def _identify(ask: Ask, schema: str) -> DatabaseIdentity:
    """The database behind a connection inside a transaction: one statement, once its server is known."""
    server, oid, name, has_schema = (await ask(_NAMES, (schema,)))[0]
    if server not in _systems:
        _systems[server] = await _system(ask)
    return DatabaseIdentity(oid, name, has_schema, _systems[server])


async def _system(ask: Ask) -> int | None:
    """The identifier of the server and its copies, if this role may know it. A savepoint: what fails here must not
    abort the caller's transaction."""
    await ask("savepoint taskharbor_identify", ())
    try:
        system: int | None = (await ask(_SYSTEM, ()))[0][0]
    except Exception:
        system = None
        await ask("rollback to savepoint taskharbor_identify", ())
    await ask("release savepoint taskharbor_identify", ())
    return system


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
                async with connection.transaction():
                    ours = await _identify(partial(run, connection), options.schema)
        finally:
            await connection.close()
    except (psycopg.Error, TimeoutError, OSError) as error:
        raise not_opened(options, error) from error
    _ours[_key(options)] = ours
    return ours


async def _open_in_thread(options: PostgresOptions) -> DatabaseIdentity:
    return run_in_thread(open_once(options))
