"""Lanes: one thread, one connection, one queue of calls. A process has two for each file: one writes, one reads.

    call ──► SimpleQueue ──► thread: [begin, call, call, …, commit] ──► one hop to each event loop

Calls that wait together are written in one transaction. One that fails spoils no other: the transaction is begun anew,
with a savepoint before each call. Nobody gets an answer before the commit. A call whose future was cancelled before
its turn is left out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from taskharbor.drivers.sqlite.connect import PATIENCE, begin, connect, unavailable
from taskharbor.drivers.sqlite.filelock import FileLock
from taskharbor.drivers.sqlite.hold import Hold
from taskharbor.drivers.sqlite.tx import Tx
from taskharbor.model.errors import BackendUnavailable

logger = logging.getLogger("taskharbor.drivers.sqlite")

Work: TypeAlias = Callable[[Tx], Any]
MOST = 64  # calls in one transaction

# The file itself failed, not this call: the connection is opened anew.
_FATAL = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL")


class Call:
    """One call that waits for its turn. `light`: it need not survive a power cut. `patient`: see hold.py."""

    __slots__ = ("future", "light", "loop", "patient", "work")

    def __init__(self, work: Work, light: bool = False, patient: bool = False) -> None:
        self.work = work
        self.light = light
        self.patient = patient
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()


class Lane:
    """A thread that works off calls. Subclasses say what a batch is."""

    def __init__(self, path: str, synchronous: str, name: str) -> None:
        self.path = path
        self.synchronous = synchronous
        self.guard = threading.Lock()  # held while the connection is used; a fork waits for it
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._ended: list[Call] = []
        self.hold = Hold()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name=f"taskharbor-sqlite-{name}", daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> None:
        self._calls.put(call)

    async def stop(self) -> None:
        """Work off what waits, then end the thread."""
        last = Call(lambda tx: None)
        self._ended.append(last)
        self._calls.put(None)
        await last.future

    def _run(self) -> None:
        stopping = False
        while not stopping:
            calls, stopping = self._gather()
            batch = [call for call in self.hold.sort(calls, stopping) if not call.future.cancelled()]
            if batch:
                with self.guard:
                    answers = self._answers(batch)
                deliver(batch, answers)
        with self.guard:
            self.disconnect()
        self.ended()
        deliver(self._ended, [None] * len(self._ended))

    def _gather(self) -> tuple[list[Call], bool]:
        """The calls that wait together, and whether the lane is to stop after them."""
        calls: list[Call] = []
        try:
            call = self._calls.get(timeout=self.hold.left())
            while call is not None:
                calls.append(call)
                if len(calls) == MOST:
                    break
                call = self._calls.get_nowait()
        except queue.Empty:
            return calls, False
        return calls, call is None

    def _answers(self, batch: list[Call]) -> list[Any]:
        try:
            answers = self.work_off(batch)
        except BaseException as error:
            told = error
            if isinstance(error, sqlite3.Error | OSError):
                told = unavailable(self.path, error)
            self._after(error)
            self._log(str(told) if isinstance(told, BackendUnavailable) else "")
            return [Failed(told)] * len(batch)
        self._log("")
        return answers

    def _log(self, trouble: str) -> None:
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

    def work_off(self, batch: list[Call]) -> list[Any]:
        raise NotImplementedError

    def ended(self) -> None:
        """The thread ends."""

    # The connection

    def connection(self) -> sqlite3.Connection:
        """The connection; opened now if there is none, refused if the file under it is gone."""
        try:
            stat = os.stat(self.path)
        except OSError as error:
            self.disconnect()
            raise unavailable(self.path, error) from error
        if self._connection is not None and self._identity != (stat.st_dev, stat.st_ino):
            self.disconnect()  # what stands there now is another file
        if self._connection is None:
            self._identity = (stat.st_dev, stat.st_ino)
            self._connection = connect(self.path, self.synchronous)
            try:
                self.connected(self._connection)
            except BaseException:
                self.disconnect()  # a file that was refused must not be used by the next call
                raise
        return self._connection

    def connected(self, connection: sqlite3.Connection) -> None:
        """A connection was opened."""

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass


class Failed:
    """In place of an answer: what is to be raised."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Reader(Lane):
    """Reads, each call from one snapshot, beside whoever writes."""

    def work_off(self, batch: list[Call]) -> list[Any]:
        connection = self.connection()
        answers = []
        for call in batch:
            connection.execute("BEGIN")
            try:
                answers.append(call.work(Tx(connection)))
            except sqlite3.Error as error:
                answers.append(Failed(unavailable(self.path, error)))
            except Exception as error:
                answers.append(Failed(error))
            finally:
                connection.execute("ROLLBACK")
        return answers


class Writer(Lane):
    """Writes. `exclusive` is this process's turn at the file, `lock` the turn among processes."""

    def __init__(self, path: str, synchronous: str, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.lock = FileLock(path)
        self.exclusive = threading.Lock()
        self.arrived: Callable[[dict[str, int]], None] = lambda arrived: None
        self._prepare = prepare
        self._level = synchronous
        super().__init__(path, synchronous, "writer")

    def connected(self, connection: sqlite3.Connection) -> None:
        self._level = self.synchronous
        self._prepare(connection)

    def ended(self) -> None:
        self.lock.close()

    def take_turn(self) -> None:
        """Wait for this process's turn, then for the turn among processes."""
        if not self.exclusive.acquire(timeout=PATIENCE):
            raise BackendUnavailable(
                f"{self.path}: a transaction of this process has held its write lock for {PATIENCE:.0f} s. "
                "A handler inside `ctx.transaction()` must not await another call to the same file."
            )
        try:
            self.lock.acquire(PATIENCE)
        except BaseException:
            self.exclusive.release()
            raise

    def end_turn(self) -> None:
        self.lock.release()
        self.exclusive.release()

    def work_off(self, batch: list[Call]) -> list[Any]:
        self.take_turn()
        try:
            connection = self.connection()
            self._durability(connection, all(call.light for call in batch))
            begin(connection, self.path)
            tx = Tx(connection)
            answers = _together(tx, batch)
            if answers is None:
                connection.execute("ROLLBACK")
                begin(connection, self.path)
                tx = Tx(connection)
                answers = [_apart(connection, tx, call) for call in batch]
            self._commit(connection)
            if tx.idle:
                self.hold.let_go()
        except BaseException as error:
            self._after(error)
            raise
        finally:
            self.end_turn()
        if tx.arrived:
            self.lock.ring()
            self.arrived(tx.arrived)
        return [
            Failed(unavailable(self.path, answer.error))
            if isinstance(answer, Failed) and isinstance(answer.error, sqlite3.Error)
            else answer
            for answer in answers
        ]

    def _commit(self, connection: sqlite3.Connection) -> None:
        if self._level == "full":
            self.hold.measure(lambda: connection.execute("COMMIT"))
        else:
            connection.execute("COMMIT")

    def _durability(self, connection: sqlite3.Connection, light: bool) -> None:
        # A reservation that a power cut takes back costs nothing: the worker died in the same moment.
        level = "normal" if light else self.synchronous
        if level != self._level:
            connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level


def _together(tx: Tx, batch: list[Call]) -> list[Any] | None:
    """The answers of all calls, or None: one of them failed. Nearly none does, and savepoints cost as much as a job."""
    answers: list[Any] = []
    try:
        for call in batch:
            if call.future.cancelled():  # while it waited for its turn
                answers.append(None)
                continue
            answers.append(call.work(tx))
            tx.flush()
    except Exception as error:
        if _spoils_all(error):
            raise
        return None
    return answers


def _apart(connection: sqlite3.Connection, tx: Tx, call: Call) -> Any:
    """The answer of one call, or how it failed, without a trace in the transaction."""
    if call.future.cancelled():
        return None
    connection.execute("SAVEPOINT call")
    arrived = dict(tx.arrived)
    try:
        answer = call.work(tx)
        tx.flush()
    except Exception as error:
        if _spoils_all(error):
            raise
        connection.execute("ROLLBACK TO call")
        connection.execute("RELEASE call")
        tx.forget()
        tx.arrived = arrived
        return Failed(error)
    connection.execute("RELEASE call")
    return answer


def _spoils_all(error: Exception) -> bool:
    """Whether the store failed, rather than the call."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError
    )


def deliver(batch: list[Call], answers: list[Any]) -> None:
    """One hop to each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for call, answer in zip(batch, answers, strict=True):
        loops.setdefault(call.loop, []).append((call.future, answer))
    for loop, answered in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, answered)
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
