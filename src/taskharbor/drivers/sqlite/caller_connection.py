"""The caller's own connection: enqueueing in the transaction that is open there (`enqueue_on`), and a driver of which
every call is a part of it (`SqliteOnConnection`). Nothing here commits what was begun before.

`drivers/sqlite_inside.py` reaches the `sqlite3.Connection` inside of what a caller passes.

The driver is for reading what a transaction has written before it commits, for tests whose transaction is never
committed, and for a database in memory, which has no other connection. It opens nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, TypeVar

from taskharbor.drivers.connections import Kind, OnCallersConnection, expect, kind_of
from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.admin import PrunePlaces
from taskharbor.drivers.sqlite.connection import is_busy, unavailable
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.options import IN_MEMORY, SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.store_clock import Reading, machine_time
from taskharbor.drivers.sqlite_inside import CallerConnection, begin, inside, plain_rows, with_inside
from taskharbor.model.errors import BackendUnavailable, WrongConnection
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

T = TypeVar("T")


def enqueue_on_sync(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs in the transaction of a synchronous connection."""
    expect(connection, "sqlite", asynchronous=False)
    return enqueue_within(inside(connection), jobs, now, options)


async def enqueue_on(
    connection: Any, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """The same for a coroutine, which may also hold an `sqlite3.Connection`: `ctx.transaction()` gives it one."""
    if kind_of(connection) is not Kind.SQLITE:
        expect(connection, "sqlite", asynchronous=True)
    return await with_inside(connection, lambda inner: enqueue_within(inner, jobs, now, options))


def enqueue_within(
    connection: CallerConnection, jobs: Sequence[JobRecord], now: datetime, options: SqliteOptions
) -> list[Enqueued]:
    """Store jobs, all or none, together with whatever the caller's transaction commits."""
    try:
        with plain_rows(connection):
            if options.path != IN_MEMORY:
                _check_file(connection, options)
            begin(connection)
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
