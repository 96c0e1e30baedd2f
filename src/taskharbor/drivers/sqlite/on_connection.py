"""The driver on one connection of the caller's: every call is a part of the transaction that is open there.

For reading what a transaction has written before it commits, for tests whose transaction is never committed, and for a
database in memory, which has no other connection. It opens nothing and commits nothing that was begun before.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Any, TypeVar

from taskharbor.drivers.sqlite import schema
from taskharbor.drivers.sqlite.admin import PrunePlaces
from taskharbor.drivers.sqlite.caller_connection import enqueue_within
from taskharbor.drivers.sqlite.connection import unavailable
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import from_ms

T = TypeVar("T")
_WAIT_S = 0.02  # nothing announces a job on such a connection
_SAVEPOINT = "taskharbor_call"


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
        with self._plain_rows() as connection, self._transaction(connection):
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
        with self._lock:
            connection = self._connection()
            text_factory, connection.text_factory = connection.text_factory, str
            row_factory, connection.row_factory = connection.row_factory, None
            try:
                yield connection
            except sqlite3.Error as error:
                raise unavailable(self.options.path, error) from error
            finally:
                connection.text_factory, connection.row_factory = text_factory, row_factory

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        nested = connection.in_transaction
        connection.execute(f"SAVEPOINT {_SAVEPOINT}" if nested else "BEGIN IMMEDIATE")
        try:
            schema.prepare(connection, self.options.path, self.options.migrate)
            yield
        except BaseException:
            if connection.in_transaction:
                if nested:
                    connection.execute(f"ROLLBACK TO {_SAVEPOINT}")
                    connection.execute(f"RELEASE {_SAVEPOINT}")
                else:
                    connection.execute("ROLLBACK")
            raise
        connection.execute(f"RELEASE {_SAVEPOINT}" if nested else "COMMIT")


@accepts_any_name
class SqliteOnConnection(SqliteDriver):
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

    async def open(self) -> None:
        """Nothing is opened: the connection is the caller's."""

    async def open_existing(self) -> None:
        """Nothing is opened: the connection is the caller's."""

    async def close(self) -> None:
        """Nothing is closed: the connection is the caller's."""

    def sibling(self) -> SqliteOnConnection:
        return self

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs in the transaction of the connection, whatever file is behind it."""
        return enqueue_within(self._connection(), jobs, now, self.options)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        await asyncio.sleep(min(timeout, _WAIT_S))
        return False
