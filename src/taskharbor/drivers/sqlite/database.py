"""One file in one process: what all drivers on it share. The writer, the reader, and the callers that wait for work.

A database lives from the first `open` to the last `close`. SQLite's connections must not cross a fork, not even unused:
before a fork all connections are closed, and the next call opens them again. The child knows no database of its parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TypeVar

from taskharbor.drivers.sqlite import file_guard, schema
from taskharbor.drivers.sqlite.admin import PrunePlaces
from taskharbor.drivers.sqlite.connection import (
    FileConnection,
    begin,
    check_library,
    connect,
    connect_existing,
    create,
    network_mount,
    refuse_links,
    unavailable,
    use_wal,
)
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.own_call import is_below_own_write, refuse_below_own_write
from taskharbor.drivers.sqlite.reader import Reader
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.threads import BackgroundThread, Call
from taskharbor.drivers.sqlite.transaction import HandlerConnection
from taskharbor.drivers.sqlite.turns import IsInterrupted
from taskharbor.drivers.sqlite.wait import FileWatch
from taskharbor.drivers.sqlite.writer import Writer
from taskharbor.drivers.wait_calls import WaitCall, WaitCalls
from taskharbor.model.errors import StoreMissing
from taskharbor.model.scarcity import missing

logger = logging.getLogger("taskharbor.drivers.sqlite")

T = TypeVar("T")

_DATABASES: dict[SqliteOptions, Database] = {}
_LOCK = threading.Lock()
_CHECKING = threading.Lock()  # held while `check_existing` has a connection open
_kept_still: list[threading.Lock] = []  # guards that a fork under way holds


class Database:
    """A file, opened by this process."""

    def __init__(self, options: SqliteOptions) -> None:
        self.options = options
        self.pid = os.getpid()
        self.users = 0
        self.waits = WaitCalls()
        self.writer = Writer(options.path, options.synchronous == "full", self._prepare, self.waits.wake)
        self.reader = Reader(self.writer, "reader")
        self.scanner = Reader(self.writer, "scanner")  # for calls that may take seconds beside a million jobs
        self.background = BackgroundThread("taskharbor-sqlite-transaction")
        self.handler_connections: set[HandlerConnection] = set()  # whose transactions are open
        self.prune_places: PrunePlaces = {}  # see admin.prune; used by the writer alone
        self._watching = threading.Lock()
        self._watch: FileWatch | None = None

    def is_foreign(self) -> bool:
        """Whether it belongs to the process from which this one was forked."""
        return self.pid != os.getpid()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """The writer has opened the file, and holds the lock file."""
        path = self.options.path
        use_wal(connection, path)
        if schema.schema_of(connection, path).fits:
            return
        begin(connection, path)
        schema.prepare(connection, path, self.options.migrate)
        connection.execute("COMMIT")

    # Calls

    async def write(
        self,
        work: Callable[[WriteSession], T],
        *,
        durable: bool = True,
        inline: bool = False,
        sync_inline: bool = False,
    ) -> T:
        """The result of a call in a write transaction.

        `durable`: return only when it would survive a power cut. `inline`: it takes a millisecond at most, so it may
        run on this thread. `sync_inline`: so may the sync.
        """
        refuse_below_own_write(self.options.path)
        if inline:
            written = self.writer.try_inline(work)
            if written is not None:
                result, wal = written
                if durable and wal is not None:
                    await self.writer.wal_sync.wait(wal, sync_inline)
                return result
        call = Call(work, durable)
        self.writer.thread.put(call)
        return await call.future

    def reader_for(self, long: bool) -> Reader:
        """Who reads. `long`: it may take seconds, so no other call shall wait for it."""
        return self.scanner if long else self.reader

    async def read(self, work: Callable[[ReadSession], T], *, long: bool = False) -> T:
        """The result of a call on a snapshot."""
        call = Call(work)
        self.reader_for(long).thread.put(call)
        return await call.future

    def write_here(
        self, work: Callable[[WriteSession], T], deadline: float, is_interrupted: IsInterrupted | None = None
    ) -> T:
        """The result of a call in a write transaction that is durable, on this thread."""
        refuse_below_own_write(self.options.path)
        result, wal = self.writer.write_here(work, deadline, is_interrupted)
        if wal is not None:
            self.writer.wal_sync.sync(wal)
        return result

    # Connections of handlers

    def lend_connection(self) -> HandlerConnection:
        """A connection for a handler's transaction. Not during a fork: the child has to know of it."""
        with _LOCK:
            connection = connect(self.options.path, self.options.synchronous, HandlerConnection)
            assert isinstance(connection, HandlerConnection)
            self.handler_connections.add(connection)
            return connection

    def take_back(self, connection: HandlerConnection) -> None:
        """The handler has ended."""
        with _LOCK:
            self.handler_connections.discard(connection)
            connection.take_back()
            file_guard.close_safely(connection, self.options.path)

    # Waiting for work

    def add_wait(self, call: WaitCall) -> None:
        """Wake `call` when work arrives, in this process or in another."""
        self.waits.add(call)
        with self._watching:
            if self._watch is None:
                try:
                    self._watch = FileWatch(self.options.path, self.writer.lock.path, self.waits)
                except (OSError, RuntimeError) as error:
                    if not missing(error):
                        raise
                    return  # without a watch `call` waits for its whole time; the next one tries again
            self._watch.wake()

    # The end

    def stop(self) -> None:
        """Do what was asked for, close all connections, and end the threads."""
        with self._watching:
            watch, self._watch = self._watch, None
        self.background.stop(wait=False)
        self.reader.stop()
        self.scanner.stop()
        self.writer.stop()
        if watch is not None:
            watch.stop()

    def connection_owners(self) -> Iterable[Writer | FileConnection]:
        """Everything that may have a connection open."""
        yield from (self.writer, self.reader.file, self.scanner.file, self.writer.checkpoint.file)
        if self._watch is not None:
            yield self._watch.file


def check_existing(path: str) -> None:
    """DriverError unless the file exists and has this program's schema. Creates and changes nothing."""
    if not os.path.exists(path):
        raise StoreMissing(f"{path}: there is no store yet; run `taskharbor migrate`")
    refuse_links(path)
    try:
        with _CHECKING, closing(connect_existing(path)) as connection:
            schema.expect(connection, path)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error


async def open_database(options: SqliteOptions, *, only_existing: bool = False) -> Database:
    """The database of a file, with the file open and its schema as it should be."""
    if only_existing:
        check_library()
        await asyncio.to_thread(check_existing, options.path)
    database = _find(options, create_file=not only_existing)
    try:
        if not is_below_own_write(options.path):  # then the file is as it should be, and may be read
            await database.write(_nothing, durable=False)
    except BaseException:
        await close_database(database)
        raise
    return database


def open_database_here(options: SqliteOptions, deadline: float, is_interrupted: IsInterrupted) -> Database:
    """The same on this thread."""
    database = _find(options, create_file=True)
    try:
        if not is_below_own_write(options.path):
            database.writer.write_here(_nothing, deadline, is_interrupted)
    except BaseException:
        close_database_here(database)
        raise
    return database


def _nothing(session: WriteSession) -> None:
    pass


def _find(options: SqliteOptions, create_file: bool) -> Database:
    """The database of a file in this process, with one more user."""
    check_library()
    file_guard.check_usable(options.path)
    if create_file:
        create(options.path)
        refuse_links(options.path)
    with _LOCK:
        database = _DATABASES.get(options)
        if database is None:
            database = _DATABASES[options] = Database(options)
            kind = network_mount(options.path)
            if kind is not None:
                logger.warning(
                    "%s lies on a network file system (%s): SQLite's locks do not hold there, and jobs may be lost or "
                    "run twice. Put it on a local disk, or use postgresql://.",
                    options.path,
                    kind,
                )
        database.users += 1
        return database


def _is_last_user(database: Database) -> bool:
    """One user less; whether it was the last one of this process, which has to stop the database."""
    with _LOCK:
        database.users -= 1
        if database.users or database.is_foreign():
            return False
        if _DATABASES.get(database.options) is database:
            del _DATABASES[database.options]
        return True


async def close_database(database: Database) -> None:
    """A driver closes; the last one stops the database."""
    if _is_last_user(database):
        thread = BackgroundThread("taskharbor-sqlite-stop")
        try:
            await thread.run(database.stop)
        finally:
            thread.stop(wait=False)


def close_database_here(database: Database) -> None:
    """The same on this thread."""
    if _is_last_user(database):
        database.stop()


def _before_fork() -> None:
    _CHECKING.acquire()
    _LOCK.acquire()
    for database in _DATABASES.values():
        for owner in database.connection_owners():
            owner.guard.acquire()
            _kept_still.append(owner.guard)
            owner.disconnect()


def _after_fork_in_parent() -> None:
    for guard in _kept_still:  # these and no others: a database may have begun to watch its file meanwhile
        guard.release()
    _kept_still.clear()
    _LOCK.release()
    _CHECKING.release()


def _after_fork_in_child() -> None:
    global _LOCK, _CHECKING
    _kept_still.clear()
    for database in _DATABASES.values():
        database.writer.lock.forget()
        for connection in database.handler_connections:
            file_guard.mark_unusable(database.options.path, file_guard.FORKED)
            connection.over = f"{database.options.path}: {file_guard.FORKED}"
            file_guard.leave_open(connection)
    _DATABASES.clear()
    _LOCK, _CHECKING = threading.Lock(), threading.Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
