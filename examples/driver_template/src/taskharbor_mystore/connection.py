"""One connection, on a thread of its own: the only file that knows the client library of the store.

A client library that blocks must not block the event loop, so every call runs on the thread. There is one, and calls
wait for each other: a driver for many workers in a process has a pool of connections here, or a library for asyncio.

A call is one transaction. It is rolled back if anything is raised in it, and the connection is closed if the library
raised it: the next call connects again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from taskharbor.drivers import BackendUnavailable
from taskharbor_mystore.schema import SCHEMA

T = TypeVar("T")

BUSY_TIMEOUT_S = 10.0  # how long a call waits for the transaction of another process


class Session:
    """Statements in the transaction of one call."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Any, **named: Any) -> int:
        """Run a statement, with a value for each `?` or `:name`; the number of rows that it changed."""
        return self._connection.execute(sql, named or values).rowcount

    def rows(self, sql: str, *values: Any, **named: Any) -> list[sqlite3.Row]:
        """The rows of a query."""
        return self._connection.execute(sql, named or values).fetchall()

    def row(self, sql: str, *values: Any, **named: Any) -> sqlite3.Row | None:
        """Its first row, if there is one."""
        found: sqlite3.Row | None = self._connection.execute(sql, named or values).fetchone()
        return found

    def next_number(self) -> int:
        """A number that is higher than all before it, for whatever has an order."""
        self.run("UPDATE counter SET number = number + 1")
        (number,) = self.row("SELECT number FROM counter") or (0,)
        return int(number)


class Connection:
    """Calls functions with a `Session`, one after the other."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None  # used on the thread alone

    async def open(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mystore")
        await self.call(lambda session: None)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """The result of `function(session, *args)`, which is one transaction.

        A caller that is cancelled stops waiting. The transaction then ends by itself, one way or the other.
        """
        if self._thread is None:
            raise BackendUnavailable("the driver is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, function, args)

    def _transaction(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        try:
            connection = self._connect()
            with connection:  # commits, or rolls back if anything is raised
                connection.execute("BEGIN IMMEDIATE")  # the lock is taken before the first read
                return function(Session(connection), *args)
        except sqlite3.DatabaseError as error:
            self._disconnect()
            raise BackendUnavailable(f"the store failed: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            connection.row_factory = sqlite3.Row
            # Another program can store any bytes as text. As lone surrogates they are readable, and never sound.
            connection.text_factory = lambda raw: raw.decode(errors="surrogateescape")
            connection.execute("PRAGMA journal_mode = wal")
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")  # twenty processes may do so at once
            self._connection = connection
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
