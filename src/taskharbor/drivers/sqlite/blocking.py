"""Blocking calls on SQLite: the calling thread writes, syncs and reads by itself, over the connections of its process.

Threads take turns at the one connection that writes and at the one that reads; those that wait for the disk at the same
time share a sync. Ctrl-C, like any signal, takes effect when a call has ended, or while it waits for its turn: never
between a lock that was taken and the line that gives it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from taskharbor.drivers.signal_safe import DeferredSignals
from taskharbor.drivers.sqlite.calls import ClientCalls
from taskharbor.drivers.sqlite.database import Database, close_database_here, open_database_here
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

T = TypeVar("T")


class SqliteBlocking:
    """The blocking calls of one client, for any number of threads."""

    def __init__(self, options: SqliteOptions) -> None:
        self.options = options
        self._database: Database | None = None
        self._changing = threading.Lock()
        self._is_closed = False
        self._calls = 0  # under way

    def until(self, deadline: float) -> _CallsUntil:
        """The driver for one call, which ends by `deadline`."""
        if self._is_closed:
            raise BackendUnavailable(f"{self.options.path}: the blocking calls on it were closed")
        return _CallsUntil(self, deadline)

    def open(self, deadline: float, signals: DeferredSignals) -> None:
        """Open the file."""
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

    def close(self) -> None:
        """Give the file back when the calls under way have ended; its last user in this process closes it."""
        with self._changing:
            self._is_closed = True
        self._close_if_unused()

    def begin_call(self) -> Database:
        """The open file, which stays open until `end_call`."""
        with self._changing:
            if self._database is None:
                raise BackendUnavailable(f"{self.options.path}: the blocking calls on it are not open")
            self._calls += 1
            return self._database

    def end_call(self) -> None:
        """A call has ended."""
        with self._changing:
            self._calls -= 1
        if self._is_closed:
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        with self._changing:
            if self._calls:
                return
            database, self._database = self._database, None
        if database is not None and not database.is_foreign():
            close_database_here(database)


@accepts_any_name
class _CallsUntil(ClientCalls):
    """The driver's calls, done on the calling thread. The coroutines never suspend."""

    def __init__(self, calls: SqliteBlocking, deadline: float) -> None:
        self.options = calls.options
        self._calls = calls
        self._deadline = deadline

    async def _write(self, work: Callable[[WriteSession], T]) -> T:
        with DeferredSignals() as signals:
            database = self._calls.begin_call()
            try:
                return database.write_here(work, self._deadline, signals.has_raised)
            finally:
                self._calls.end_call()

    async def _read(self, work: Callable[[ReadSession], T]) -> T:
        with DeferredSignals():
            database = self._calls.begin_call()
            try:
                return database.reader.read_here(work, self._deadline)
            finally:
                self._calls.end_call()

    async def open(self) -> None:
        with DeferredSignals() as signals:
            self._calls.open(self._deadline, signals)

    async def server_time(self) -> datetime:
        with DeferredSignals():
            database = self._calls.begin_call()
            try:
                return database.server_time()
            finally:
                self._calls.end_call()

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        limit = self.options.max_payload
        return await self._write(lambda session: enqueue(session, jobs, now, limit))
