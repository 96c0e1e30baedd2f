"""Enqueueing on the caller's own connection, in the caller's own transaction. Nothing here commits.

A caller may pass an `sqlite3.Connection`, SQLAlchemy's session or connection, or Django's connection. The connection
inside is reached by the libraries' public API only. Their wrapper must begin the transaction: it would not commit one
that it does not know of. aiosqlite keeps its connection on a thread of its own; there each statement goes through
SQLAlchemy's cursor, which waits without blocking the event loop.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

from taskharbor.drivers.connections import Kind, expect, kind_of
from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.connection import is_busy, unavailable
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.options import IN_MEMORY, SqliteOptions
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.model.errors import BackendUnavailable, WrongConnection
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued


def enqueue_on_sync(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs in the transaction of a synchronous connection."""
    kind = expect(connection, "sqlite", asynchronous=False)
    if kind is Kind.DJANGO:
        return enqueue_within(_of_django(connection), jobs, now, options)
    if kind is Kind.SQLITE:
        return enqueue_within(connection, jobs, now, options)
    return enqueue_within(_of_sqlalchemy(connection).driver_connection, jobs, now, options)


async def enqueue_on(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """The same for a coroutine, which may also hold an `sqlite3.Connection`: `ctx.transaction()` gives it one."""
    if kind_of(connection) is Kind.SQLITE:
        return enqueue_within(connection, jobs, now, options)
    kind = expect(connection, "sqlite", asynchronous=True)
    if kind is Kind.ASYNC_SESSION:
        connection = await connection.connection()
    results: list[Enqueued] = await connection.run_sync(
        lambda wrapped: enqueue_within(_AioSqliteConnection(_of_sqlalchemy(wrapped)), jobs, now, options)
    )
    return results


def _of_django(connection: Any) -> sqlite3.Connection:
    connection.validate_thread_sharing()
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    found: sqlite3.Connection = connection.connection
    return found


def _of_sqlalchemy(connection: Any) -> Any:
    """The pool's proxy, which has the library's connection in it."""
    if kind_of(connection) is Kind.SESSION:
        connection = connection.connection()
    if not connection.in_transaction():
        connection.begin()  # as its first statement would
    return connection.connection


class _AioSqliteConnection:
    """aiosqlite's connection as a CallerConnection: its own settings, and SQLAlchemy's cursors."""

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self._inner = proxy.driver_connection

    @property
    def in_transaction(self) -> bool:
        return bool(self._inner.in_transaction)

    @property
    def isolation_level(self) -> str | None:
        level: str | None = self._inner.isolation_level
        return level

    @property
    def row_factory(self) -> Any:
        return self._inner.row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        self._inner.row_factory = factory

    @property
    def text_factory(self) -> Any:
        return self._inner.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self._inner.text_factory = factory

    def cursor(self) -> Any:
        return self._proxy.cursor()

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        cursor = self.cursor()
        cursor.execute(sql, parameters)
        return cursor


class CallerConnection(Protocol):
    """What we use of a caller's connection: an `sqlite3.Connection`, or an object that behaves as one."""

    row_factory: Any
    text_factory: Any

    @property
    def in_transaction(self) -> bool: ...
    @property
    def isolation_level(self) -> str | None: ...
    def cursor(self) -> Any: ...
    def execute(self, sql: str, parameters: Any = ..., /) -> Any: ...


def enqueue_within(
    connection: CallerConnection, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs, all or none, together with whatever the caller's transaction commits."""
    try:
        with plain_rows(connection):
            if options.path != IN_MEMORY:
                _check_file(connection, options)
            if not connection.in_transaction:
                _begin(connection)
            with savepoint(connection, "taskharbor_enqueue"):
                _write_first(connection)
                schema.prepare(connection, options.path, options.migrate)
                session = WriteSession(connection)
                results = enqueue(session, jobs, now, options.max_payload)
                session.flush()
            return results
    except sqlite3.InterfaceError:
        raise  # of a handler whose transaction is over: it says why
    except sqlite3.Error as error:
        if is_busy(error):
            raise BackendUnavailable(
                f"{options.path}: another connection wrote to it since this transaction began; "
                "begin with BEGIN IMMEDIATE, or enqueue before you read"
            ) from error
        raise unavailable(options.path, error) from error


@contextmanager
def plain_rows(connection: CallerConnection) -> Iterator[None]:
    """A block in which rows are tuples and text is str, whatever the caller has set."""
    text_factory, connection.text_factory = connection.text_factory, str
    row_factory, connection.row_factory = connection.row_factory, None
    try:
        yield
    finally:
        connection.text_factory, connection.row_factory = text_factory, row_factory


@contextmanager
def savepoint(connection: CallerConnection, name: str) -> Iterator[None]:
    """A block of a transaction that is undone alone if it raises."""
    connection.execute(f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute(f"ROLLBACK TO {name}")
            connection.execute(f"RELEASE {name}")
        raise
    connection.execute(f"RELEASE {name}")


def _begin(connection: CallerConnection) -> None:
    # `autocommit` came with Python 3.12; set to True it makes commit() and rollback() do nothing.
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise WrongConnection(
            "connection: expected one inside a transaction, got one in autocommit mode, where the job would be stored "
            "whatever becomes of your own writes; begin a transaction first (BEGIN IMMEDIATE; transaction.atomic() in "
            "Django), or leave connection= out"
        )
    # As Python's own sqlite3 does before the first write; we read first.
    connection.execute("BEGIN IMMEDIATE")


def _write_first(connection: CallerConnection) -> None:
    """Take the write lock before anything is read. A transaction that has only begun (with `autocommit=False` Python
    begins one at once) can wait for other writers now; once it has read, SQLite can only refuse it."""
    try:
        connection.execute("DELETE FROM taskharbor_meta WHERE 0")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            raise  # otherwise there is no such table: the schema is made now


def _check_file(connection: CallerConnection, options: SqliteOptions) -> None:
    files = {name: file for _, name, file in connection.execute("PRAGMA database_list").fetchall()}
    file = files.get("main")
    if not file or not os.path.exists(options.path) or not os.path.samefile(file, options.path):
        raise WrongConnection(
            f"the connection is to {file or 'a database in memory'}, the jobs are in {options.path}: "
            "one transaction cannot hold both"
        )
