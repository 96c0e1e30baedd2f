"""Blocking calls on SQLite: the calling thread writes, syncs and reads by itself, over the connections of its process.

Threads take turns at the one connection that writes and at the one that reads; those that wait for the disk at the same
time share a sync. Ctrl-C, like any signal, takes effect when a call has ended, or while it waits for its turn: never
between a lock that was taken and the line that gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from taskharbor.drivers.signal_safe import DeferredSignals
from taskharbor.drivers.sqlite.database import Database, close_database_here, open_database_here
from taskharbor.drivers.sqlite.driver import SqliteDriver
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.own_call import call_on_this_thread
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.store_clock import Reading
from taskharbor.drivers.sqlite.turns import IsInterrupted
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")


class SqliteBlocking:
    """The blocking calls of one client, for any number of threads."""

    def __init__(self, options: SqliteOptions, reading: Reading) -> None:
        self.options = options
        self.reading = reading  # of the driver: a clock follows both
        self._database: Database | None = None
        self._changing = threading.Lock()
        self._is_closed = False
        self._calls = 0  # under way

    def until(self, deadline: float) -> SqliteDriver:
        """The driver for one call, which ends by `deadline`."""
        if self._is_closed:
            raise BackendUnavailable(f"{self.options.path}: the blocking calls on it were closed")
        return _DriverUntil(self, deadline)

    def open(self, deadline: float) -> None:
        """Open the file."""
        with DeferredSignals() as signals, call_on_this_thread(self.options.path):
            if self._database is None:
                database = open_database_here(self.options, deadline, signals.has_raised)
                if not self._keep(database):
                    close_database_here(database)

    def _keep(self, database: Database) -> bool:
        """False: another thread has opened the file, or closed the calls."""
        with self._changing:
            if self._database is not None or self._is_closed:
                return False
            self._database = database
            return True

    def run(self, call: Callable[[Database, IsInterrupted], T]) -> T:
        """The result of a call on the open file, which stays open meanwhile."""
        with DeferredSignals() as signals, call_on_this_thread(self.options.path):
            with self._changing:
                database = self._database
                if database is None:
                    raise BackendUnavailable(f"{self.options.path}: the blocking calls on it are not open")
                self._calls += 1
            try:
                return call(database, signals.has_raised)
            finally:
                with self._changing:
                    self._calls -= 1
                if self._is_closed:
                    self._close_if_unused()

    def close(self) -> None:
        """Give the file back when the calls under way have ended; its last user in this process closes it."""
        with self._changing:
            self._is_closed = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        with self._changing:
            if self._calls:
                return
            database, self._database = self._database, None
        if database is not None and not database.is_foreign():
            close_database_here(database)


class _DatabaseUntil:
    """What the driver needs of its database, for one call on the calling thread. The coroutines never suspend."""

    def __init__(self, calls: SqliteBlocking, deadline: float) -> None:
        self._calls = calls
        self._deadline = deadline

    def is_foreign(self) -> bool:
        return False

    def open(self) -> None:
        self._calls.open(self._deadline)

    async def write(self, work: Callable[[WriteSession], T], **_: Any) -> T:
        """The result of a call in a write transaction that is durable."""
        return self._calls.run(
            lambda database, is_interrupted: database.write_here(work, self._deadline, is_interrupted)
        )

    async def read(self, work: Callable[[ReadSession], T], *, long: bool = False) -> T:
        """The result of a call on a snapshot."""
        return self._calls.run(lambda database, _: database.reader_for(long).read_here(work, self._deadline))


class _DriverUntil(SqliteDriver):
    """The driver for one call."""

    def __init__(self, calls: SqliteBlocking, deadline: float) -> None:
        self.options, self._dsn, self._seen, self._reading = calls.options, "sqlite://", {}, calls.reading
        self._database: Any = _DatabaseUntil(calls, deadline)

    async def open(self) -> None:
        self._database.open()

    async def close(self) -> None:
        """Nothing is closed with one call: see `SqliteBlocking.close`."""
