"""What all drivers of a process on one file share: the two lanes, who waits for work, and who hears of other processes.

A database lives from the first `open` to the last `close`. SQLite's connections must not cross a fork, not even unused:
before one, all connections are closed, and opened again by the next call; the child knows no database of its parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime
from typing import TypeVar, cast

from taskharbor.drivers.sqlite import file_guard, schema
from taskharbor.drivers.sqlite.background import BackgroundThread
from taskharbor.drivers.sqlite.checkpoint import Checkpointer
from taskharbor.drivers.sqlite.connection import (
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
from taskharbor.drivers.sqlite.handler_connection import HandlerConnection
from taskharbor.drivers.sqlite.options import SqliteOptions
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.threads import Call, ConnectionThread, Failed, ReaderThread
from taskharbor.drivers.sqlite.wait import FileWatch
from taskharbor.drivers.sqlite.writer import WriterThread
from taskharbor.model.errors import StoreMissing
from taskharbor.model.job import EPOCH
from taskharbor.model.times import from_ms

logger = logging.getLogger("taskharbor.drivers.sqlite")

T = TypeVar("T")

_DATABASES: dict[SqliteOptions, Database] = {}
_LOCK = threading.Lock()
_LOOKING = threading.Lock()
_guarded: list[ConnectionThread | Checkpointer | FileWatch] = []  # what a fork under way keeps still


class Waiter:
    """One call of `wait`: woken by an arrival after what its driver has seen."""

    __slots__ = ("future", "loop", "seen")

    def __init__(self, seen: dict[str, int]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()
        self.seen = seen

    def answer(self, value: bool) -> None:
        """On the waiter's own loop only."""
        if not self.future.done():
            self.future.set_result(value)

    def concerns(self, arrived: dict[str, int]) -> bool:
        return any(arrived.get(name, 0) > number for name, number in self.seen.items())


class Database:
    """One file in one process."""

    def __init__(self, options: SqliteOptions) -> None:
        self.options = options
        self.pid = os.getpid()
        self.users = 0
        self.writer = WriterThread(options.path, options.synchronous, self._prepare)
        self.writer.arrived = self.heard
        self.reader = ReaderThread(options.path, "normal", "reader")
        self.writer.replaced = self.reader.replaced = self._let_go_of_the_old_file
        self.background = BackgroundThread("taskharbor-sqlite-transaction")
        self._waiters: dict[Waiter, None] = {}
        self._waiting = threading.Lock()
        self._watch: FileWatch | None = None
        self._time = EPOCH
        self.lent: set[HandlerConnection] = set()  # to handlers, for as long as their transactions are open
        self.prune_places: dict[tuple[str, int], tuple[int, int]] = {}  # see admin.prune; used by the writer alone

    def is_foreign(self) -> bool:
        """Whether it belongs to the process from which this one was forked."""
        return self.pid != os.getpid()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """The writer opened the file: it holds the lock beside it."""
        path = self.options.path
        use_wal(connection, path)
        if schema.schema_of(connection).fits:
            return
        begin(connection, path)
        schema.prepare(connection, path, self.options.migrate)
        connection.execute("COMMIT")

    def _let_go_of_the_old_file(self) -> None:
        """The file was replaced: parts that do not look for themselves must not stay with the old one."""
        for part in self.parts():
            if not isinstance(part, ConnectionThread) and part.guard.acquire(timeout=1.0):
                part.disconnect()
                part.guard.release()

    # Calls

    async def write(self, work: Callable[[WriteSession], T], light: bool = False, small: bool = False) -> T:
        """The answer of a call. `light`: it need not survive a power cut; `small`: it takes a millisecond at most."""
        call = Call(work, light)
        done = self.writer.try_inline(call) if small else None
        if done is None:
            self.writer.submit(call)
        elif call.log is None:
            (answer,) = done
            if isinstance(answer, Failed):
                raise answer.error
            return cast(T, answer)
        else:
            self.writer.answer([call], done)
        return cast(T, await call.future)

    async def read(self, work: Callable[[ReadSession], T]) -> T:
        call = Call(work)
        self.reader.submit(call)
        result: T = await call.future
        return result

    def server_time(self) -> datetime:
        with _LOCK:
            self._time = max(self._time, from_ms(int(time.time() * 1000)))
            return self._time

    # Connections for handlers

    def lend(self) -> HandlerConnection:
        """A connection of its own. Not during a fork: the child has to know of it."""
        with _LOCK:
            connection = connect(self.options.path, self.options.synchronous, HandlerConnection)
            assert isinstance(connection, HandlerConnection)
            self.lent.add(connection)
            return connection

    def take_back(self, connection: HandlerConnection) -> None:
        """Its handler has ended."""
        with _LOCK:
            self.lent.discard(connection)
            connection.take_back()
            file_guard.close_safely(connection, self.options.path)

    # Waiting

    def add(self, waiter: Waiter) -> None:
        with self._waiting:
            self._waiters[waiter] = None
            if self._watch is None:
                self._watch = FileWatch(self.options.path, self.writer.lock.path, self._wanted, self.heard)
            self._watch.ring()

    def remove(self, waiter: Waiter) -> None:
        with self._waiting:
            self._waiters.pop(waiter, None)

    def _wanted(self) -> list[str]:
        with self._waiting:
            return list({name for waiter in self._waiters for name in waiter.seen})

    def heard(self, arrived: dict[str, int]) -> None:
        """Something arrived, here or in another process: wake whom it concerns."""
        if not self._waiters:
            return
        with self._waiting:
            woken = [waiter for waiter in self._waiters if waiter.concerns(arrived)]
            for waiter in woken:
                del self._waiters[waiter]
        for waiter in woken:
            try:
                waiter.loop.call_soon_threadsafe(waiter.answer, True)
            except RuntimeError:
                pass  # its loop was closed without cancelling it: nobody is waiting any more

    # The end

    async def stop(self) -> None:
        """Work off what was asked, and end the threads."""
        with self._waiting:
            watch, self._watch = self._watch, None
        self.background.stop()
        ends = [self.reader.stop(), self.writer.stop()]
        if watch is not None:
            ends.append(asyncio.to_thread(watch.stop))
        await asyncio.gather(*ends)

    def parts(self) -> Iterable[ConnectionThread | Checkpointer | FileWatch]:
        yield from (self.writer, self.reader, self.writer.checkpoint)
        if self._watch is not None:
            yield self._watch


def look(path: str) -> None:
    """DriverError unless the file is there and has this program's schema. Creates nothing, and changes nothing."""
    if not os.path.exists(path):
        raise StoreMissing(f"{path}: there is no store yet; run `taskharbor migrate`")
    refuse_links(path)
    try:
        with _LOOKING, closing(connect_existing(path)) as connection:
            schema.expect(connection, path)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error


async def acquire(options: SqliteOptions, *, only_existing: bool = False) -> Database:
    """The database of a file, with the file open and its schema as it should be."""
    check_library()
    file_guard.check_usable(options.path)
    if only_existing:
        await asyncio.to_thread(look, options.path)
    else:
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
    try:
        await database.write(lambda session: None, light=True)
    except BaseException:
        await let_go(database)
        raise
    return database


async def let_go(database: Database) -> None:
    """A driver lets go of the database; the last one ends it."""
    with _LOCK:
        database.users -= 1
        if database.users or database.is_foreign():
            return
        if _DATABASES.get(database.options) is database:
            del _DATABASES[database.options]
    await database.stop()


def _before_fork() -> None:
    _LOOKING.acquire()
    _LOCK.acquire()
    for database in _DATABASES.values():
        for part in database.parts():
            part.guard.acquire()
            _guarded.append(part)
            part.disconnect()


def _after_fork_in_parent() -> None:
    for part in _guarded:  # these and no others: a database may have begun to watch its file meanwhile
        part.guard.release()
    _guarded.clear()
    _LOCK.release()
    _LOOKING.release()


def _after_fork_in_child() -> None:
    global _LOCK, _LOOKING
    _guarded.clear()
    for database in _DATABASES.values():
        database.writer.lock.forget()
        for connection in database.lent:
            file_guard.mark_unusable(database.options.path, file_guard.FORKED)
            connection.over = f"{database.options.path}: {file_guard.FORKED}"
            file_guard.leave_open(connection)
    _DATABASES.clear()
    _LOCK, _LOOKING = threading.Lock(), threading.Lock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
