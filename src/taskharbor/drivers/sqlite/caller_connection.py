"""The caller's own connection: enqueueing in the transaction that is open there (`enqueue_on`), and a driver of which
every call is a part of it (`SqliteOnConnection`). Nothing here commits what was begun before.

A caller may pass an `sqlite3.Connection`, SQLAlchemy's session or connection, or Django's connection. The connection
inside is reached by the libraries' public API only. Their wrapper must begin the transaction: it would not commit one
that it does not know of. aiosqlite keeps its connection on a thread of its own; there each statement goes through
SQLAlchemy's cursor, which waits without blocking the event loop.

The driver is for reading what a transaction has written before it commits, for tests whose transaction is never
committed, and for a database in memory, which has no other connection. It opens nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, Protocol, TypeVar

from taskharbor.drivers.connections import Kind, OnCallersConnection, expect, kind_of
from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.admin import PrunePlaces
from taskharbor.drivers.sqlite.connection import is_busy, unavailable
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.options import IN_MEMORY, SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.store_clock import Reading, machine_time
from taskharbor.model.errors import BackendUnavailable, WrongConnection
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

T = TypeVar("T")


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


def _setting(name: str) -> Any:
    """An attribute that is aiosqlite's own."""
    return property(lambda self: getattr(self._inner, name), lambda self, value: setattr(self._inner, name, value))


class _AioSqliteConnection:
    """aiosqlite's connection as a CallerConnection: its own settings, and SQLAlchemy's cursors."""

    in_transaction = _setting("in_transaction")
    isolation_level = _setting("isolation_level")
    row_factory = _setting("row_factory")
    text_factory = _setting("text_factory")

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy
        self._inner = proxy.driver_connection

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


# Every call on one connection


class ConnectionDatabase:
    """What the driver needs of its database, on one connection."""

    def __init__(
        self, options: SqliteOptions, connection: Callable[[], sqlite3.Connection], lock: AbstractContextManager[Any]
    ) -> None:
        self.options = options
        self.prune_places: PrunePlaces = {}
        self._connection = connection
        self._lock = lock

    def is_foreign(self) -> bool:
        return False

    async def write(self, work: Callable[[WriteSession], T], **_: Any) -> T:
        """The result of a call, within a savepoint if a transaction is open."""
        with (
            self._plain_rows() as connection,
            savepoint(connection, "taskharbor_call") if connection.in_transaction else _immediate(connection),
        ):
            schema.prepare(connection, self.options.path, self.options.migrate)
            session = WriteSession(connection)
            result = work(session)
            session.flush()
            return result

    async def read(self, work: Callable[[ReadSession], T], **_: Any) -> T:
        """The result of a call that changes nothing."""
        with self._plain_rows() as connection:
            schema.expect(connection, self.options.path)
            return work(ReadSession(connection))

    @contextmanager
    def _plain_rows(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, plain_rows(connection := self._connection()):
                yield connection
        except sqlite3.Error as error:
            raise unavailable(self.options.path, error) from error


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class SqliteOnConnection(OnCallersConnection, SqliteDriver):
    """A driver on one connection. Made by `SqliteDriver.on_connection`, or directly for a database in memory.

    `lock`: held during each call, if others use the connection.
    """

    def __init__(
        self,
        options: SqliteOptions,
        connection: Callable[[], sqlite3.Connection],
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.options, self._dsn, self._seen, self._reading = options, "sqlite://", {}, Reading()
        self._database: Any = ConnectionDatabase(options, connection, lock or nullcontext())
        self._connection = connection

    async def server_time(self) -> datetime:
        return machine_time(self._reading)  # a step is followed by the workers, not in the caller's transaction

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs in the transaction of the connection, whatever file is behind it."""
        return enqueue_within(self._connection(), jobs, now, self.options)
