"""Lanes: one thread, one connection, one queue of calls. A process has two for each file: one writes, one reads.

    call ──► SimpleQueue ──► thread: call, call, … ──► one hop to each event loop

What waits together is worked off together. A call whose future was cancelled before its turn is left out.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.connection import connect, unavailable
from taskharbor.drivers.sqlite.damage import is_undecodable, reading_any_text
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.wal_sync import WalFile

logger = logging.getLogger("taskharbor.drivers.sqlite")

Work: TypeAlias = Callable[[WriteSession], Any]
MOST = 64  # calls in one transaction

# The file itself failed, not this call: the connection is opened anew.
_FATAL = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL")


class Call:
    """One call that waits for its turn. `light`: it need not survive a power cut. `log`: the file that is to be synced
    before it is answered."""

    __slots__ = ("future", "light", "log", "loop", "work")

    def __init__(self, work: Work, light: bool = False) -> None:
        self.work = work
        self.light = light
        self.log: WalFile | None = None
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class Signal(enum.Enum):
    """What a lane's thread is told between calls."""

    STOP = enum.auto()
    LOOK = enum.auto()  # look around: there is something to do beside calls


class ConnectionThread:
    """A thread that works off calls. Subclasses say what a batch is."""

    def __init__(self, path: str, synchronous: str, name: str) -> None:
        self.path = path
        self.synchronous = synchronous
        self.guard = threading.Lock()  # held while the connection is used; a fork waits for it
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._calls: queue.SimpleQueue[Call | Signal] = queue.SimpleQueue()
        self._busy = False
        self._ended: list[Call] = []
        self._trouble = ""
        self.replaced: Callable[[], None] = lambda: None  # called when another file stands in the place of ours
        self._thread = threading.Thread(target=self._run, name=f"taskharbor-sqlite-{name}", daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> None:
        self._calls.put(call)

    async def stop(self) -> None:
        """Work off what waits, then end the thread."""
        last = Call(lambda session: None)
        self._ended.append(last)
        self._calls.put(Signal.STOP)
        await last.future

    def _run(self) -> None:
        stopping = False
        while not stopping:
            calls, stopping = self._gather()
            batch = [call for call in calls if not call.future.cancelled()]
            if batch:
                answers = self._answers(batch)
            self._busy = False
            if batch:
                self.answer(batch, answers)
            self.rest()
        with self.guard:
            self.disconnect()
        self.ended()
        deliver((call, None) for call in self._ended)

    def _gather(self) -> tuple[list[Call], bool]:
        """The calls that wait together, and whether the lane is to stop after them."""
        calls: list[Call] = []
        item = self._calls.get()
        self._busy = True
        try:
            while item is not Signal.STOP:
                if isinstance(item, Call):
                    calls.append(item)
                if len(calls) == MOST:
                    return calls, False
                item = self._calls.get_nowait()
        except queue.Empty:
            return calls, False
        return calls, True

    def _answers(self, batch: list[Call]) -> list[Any]:
        try:
            answers = self.in_turn(batch)
        except BaseException as error:
            with self.guard:
                return [self.refused(error)] * len(batch)
        self.tell("")
        return answers

    def in_turn(self, batch: list[Call]) -> list[Any]:
        """Work off calls as soon as it is this lane's turn, under the guard. Whatever is waited for, is waited for
        without it: a fork needs it, and may be made by the very thread that is waited for."""
        raise NotImplementedError

    def refused(self, error: BaseException) -> Failed:
        """What all calls of a batch are answered that could not be worked off."""
        told = error
        if isinstance(error, sqlite3.Error | OSError):
            told = unavailable(self.path, error)
        self._after(error)
        self.tell(str(told) if isinstance(told, BackendUnavailable) else "")
        return Failed(told)

    def tell(self, trouble: str) -> None:
        """Each trouble is told once until it is over: callers try again and again."""
        if trouble and trouble != self._trouble:
            logger.error("%s", trouble)
        self._trouble = trouble

    def _after(self, error: BaseException) -> None:
        connection = self._connection
        if connection is None:
            return
        name = getattr(error, "sqlite_errorname", "") or ""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            name = "SQLITE_IOERR"
        if name.startswith(_FATAL):
            self.disconnect()

    def answer(self, batch: list[Call], answers: list[Any]) -> None:
        deliver(zip(batch, answers, strict=True))

    def rest(self) -> None:
        """Nothing waits for the moment."""

    def ended(self) -> None:
        """The thread ends."""

    # The connection

    def connection(self) -> sqlite3.Connection:
        """The connection; opened now if there is none, refused if the file under it is gone."""
        file_guard.check_usable(self.path)
        try:
            identity = self._identity_now()
        except OSError as error:
            self.disconnect()
            raise unavailable(self.path, error) from error
        if self._connection is not None and self._identity != identity:
            self.disconnect()  # what stands there now is another file
            self.replaced()
        if self._connection is None:
            self._identity = identity
            self._connection = connect(self.path, self.synchronous)
            try:
                self.connected(self._connection)
            except BaseException:
                self.disconnect()  # a file that was refused must not be used by the next call
                raise
        return self._connection

    def _identity_now(self) -> tuple[int, int]:
        stat = os.stat(self.path)
        return stat.st_dev, stat.st_ino

    def connected(self, connection: sqlite3.Connection) -> None:
        """A connection was opened."""

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        file_guard.close_safely(connection, self.path)


class Failed:
    """In place of an answer: what is to be raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ReaderThread(ConnectionThread):
    """Reads, each call from one snapshot, beside whoever writes."""

    def in_turn(self, batch: list[Call]) -> list[Any]:
        with self.guard:
            return self._read(batch)

    def _read(self, batch: list[Call]) -> list[Any]:
        connection = self.connection()
        answers = []
        for call in batch:
            connection.execute("BEGIN")
            try:
                answers.append(_answer(connection, call))
            except sqlite3.Error as error:
                answers.append(Failed(unavailable(self.path, error)))
            except Exception as error:
                answers.append(Failed(error))
            finally:
                if connection.in_transaction:  # SQLite may have rolled back by itself: the cause is what counts
                    connection.execute("ROLLBACK")
        return answers


def _answer(connection: sqlite3.Connection, call: Call) -> Any:
    try:
        return call.work(WriteSession(connection))
    except sqlite3.OperationalError as error:
        if not is_undecodable(error):
            raise
    with reading_any_text(connection):
        return call.work(WriteSession(connection))


def deliver(answered: Iterable[tuple[Call, Any]]) -> None:
    """One hop to each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for call, answer in answered:
        loops.setdefault(call.loop, []).append((call.future, answer))
    for loop, futures in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            pass  # the loop was closed: nobody is waiting any more


def _resolve(answered: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in answered:
        if future.done():
            continue
        if isinstance(answer, Failed):
            future.set_exception(answer.error)
        else:
            future.set_result(answer)
