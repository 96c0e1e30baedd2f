"""The driver on one connection of the caller's: every call is a part of the transaction that is open there.

For reading what a transaction has written before it commits, for tests whose transaction is never committed, and for a
database in memory, which has no other connection. It opens nothing and commits nothing that was begun before.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, TypeVar

from taskharbor.drivers.connections import OnCallersConnection
from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.admin import PrunePlaces
from taskharbor.drivers.sqlite.caller_connection import enqueue_within, plain_rows, savepoint
from taskharbor.drivers.sqlite.connection import unavailable
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import from_ms

T = TypeVar("T")


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

    def server_time(self) -> datetime:
        return from_ms(time.time_ns() // 1_000_000)

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

    async def read(self, work: Callable[[ReadSession], T]) -> T:
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


@accepts_any_name
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
        self.options = options
        self._dsn = "sqlite://"
        self._database: Any = ConnectionDatabase(options, connection, lock or nullcontext())
        self._seen = {}
        self._connection = connection

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs in the transaction of the connection, whatever file is behind it."""
        return enqueue_within(self._connection(), jobs, now, self.options)
