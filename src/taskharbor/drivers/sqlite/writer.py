"""The lane that writes. `turns` are this process's turns at the file, `lock` the turn among processes.

    a small call, and nobody in the way:  begin, call, commit, on the caller's own thread
    any other: ──► the lane's thread:     begin, call, call, …, commit
    and then, what must survive a power cut: ──► the wal_sync's thread: one sync for all that wait

A small call takes less time than two threads that hand it to each other. It never waits there: not for a lock, not
for a sync, not for a checkpoint. Where writing takes long all the same, for a while the lane's thread does it.

Calls that wait together are written in one transaction. One that fails spoils no other: the transaction is begun anew,
with a savepoint before each call. Nobody gets an answer before the commit.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from taskharbor.drivers.sqlite.checkpoint import Checkpointer
from taskharbor.drivers.sqlite.connection import PATIENCE, is_busy, unavailable
from taskharbor.drivers.sqlite.damage import is_undecodable, reading_any_text
from taskharbor.drivers.sqlite.file_lock import FileLock
from taskharbor.drivers.sqlite.session import WouldBlock, WriteSession
from taskharbor.drivers.sqlite.threads import Call, ConnectionThread, Failed, Signal, deliver
from taskharbor.drivers.sqlite.turns import Turn, Turns
from taskharbor.drivers.sqlite.wal_sync import WalFile, WalSync

SLOW = 0.05  # seconds: a call on its caller's thread that took longer was one too many
STEPS = 10_000  # of SQLite's machine, from one look at the clock to the next
SHORT_MS = 250  # for which the guard is kept while a program without our lock writes to the file
PAUSE = 0.5  # seconds after such a one for which every call goes to the lane's thread


class Locked(Exception):
    """Somebody who does not know our lock writes to the file: the calls are to be worked off a little later."""

    def __init__(self, error: sqlite3.OperationalError) -> None:
        self.error = error


class WriterThread(ConnectionThread):
    """Writes. `arrived` is told which queues got work."""

    def __init__(self, path: str, synchronous: str, prepare: Callable[[sqlite3.Connection], None]) -> None:
        self.lock = FileLock(path)
        self.turns = Turns(path)
        self.arrived: Callable[[dict[str, int]], None] = lambda arrived: None
        self.durable = synchronous == "full"
        self.checkpoint = Checkpointer(path, self.take_turn, self.end_turn)
        self.wal_sync = WalSync(path, self.checkpoint.make)
        self._prepare = prepare
        self._log: WalFile | None = None
        self._log_is_empty = False
        self._checkpoint_due = False
        self._on_its_thread_until = 0.0
        self._tired_at = math.inf  # when a call on its caller's thread is given up, and left to the lane's
        super().__init__(path, "normal", "writer")

    def connected(self, connection: sqlite3.Connection) -> None:
        self._prepare(connection)
        self.lock.note_pair(self.path)
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # a commit on a caller's thread must never make one
        connection.set_progress_handler(lambda: time.monotonic() > self._tired_at, STEPS)
        self._log = WalFile(self.path)
        self._log_is_empty = self._log.is_empty()

    def disconnect(self) -> None:
        self._log = None
        super().disconnect()

    def ended(self) -> None:
        self.wal_sync.stop()
        with self.checkpoint.guard:
            self.checkpoint.disconnect()
        self.lock.close()

    # Turns

    def take_turn(self) -> None:
        """Wait for this process's turn, then for the turn among processes."""
        self.turns.take(PATIENCE)
        self.take_lock()

    def wait_for(self, turn: Turn, woken: threading.Event) -> None:
        """Wait for this process's turn in a place in line that another thread may give up."""
        self.turns.wait(turn, woken, PATIENCE)

    async def wait_for_own(self) -> None:
        """Wait for this process's turn in a coroutine."""
        await self.turns.take_async(PATIENCE)

    def take_lock(self) -> None:
        """In this process's turn: wait for the turn among processes. If it does not come, this one is over."""
        try:
            self.lock.acquire(PATIENCE)
        except BaseException:
            self.turns.end()
            raise

    def _take_turn_at_once(self) -> bool:
        if not self.turns.take_at_once():
            return False
        if self.lock.acquire_at_once():
            return True
        self.turns.end()
        return False

    def end_turn(self) -> None:
        """Both turns are over."""
        self.lock.release()
        self.turns.end()

    # Working off

    def try_inline(self, call: Call) -> list[Any] | None:
        """Work off a call here and now; None if anything is in its way."""
        began = time.monotonic()
        if self._busy or not self._calls.empty() or self._connection is None or began < self._on_its_thread_until:
            return None
        if not self.guard.acquire(blocking=False):
            return None
        try:
            if not self._take_turn_at_once():
                return None
            try:
                self._tired_at = began + SLOW
                answers, arrived = self.work_off([call], wait=False)
            finally:
                self.end_turn()
            self._ring(arrived)
            self.tell("")
        except WouldBlock:
            return None
        except BaseException as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                self._on_its_thread_until = began + PAUSE
                return None
            answers = [self.refused(error)]
        finally:
            self._tired_at = math.inf
            self.guard.release()
        if time.monotonic() - began > SLOW:
            self._on_its_thread_until = began + PAUSE
        return answers

    def in_turn(self, batch: list[Call]) -> list[Any]:
        self.take_turn()
        try:
            answers, arrived = self._when_unlocked(batch)
        finally:
            self.end_turn()
        self._ring(arrived)
        return answers

    def _when_unlocked(self, batch: list[Call]) -> tuple[list[Any], dict[str, int]]:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.guard:
                    return self.work_off(batch)
            except Locked as locked:
                if time.monotonic() > deadline:
                    raise unavailable(self.path, locked.error) from locked.error
                time.sleep(0.001)  # or whoever waits for the guard would never get it

    def work_off(self, batch: list[Call], wait: bool = True) -> tuple[list[Any], dict[str, int]]:
        """The answers of calls that were worked off in one transaction, and what arrived by it. In this process's turn;
        without `wait` WouldBlock may be raised."""
        try:
            session, answers = self._transaction(batch, wait)
        except BaseException as error:
            self._after(error)
            raise
        return [
            Failed(unavailable(self.path, answer.error))
            if isinstance(answer, Failed) and isinstance(answer.error, sqlite3.Error)
            else answer
            for answer in answers
        ], session.arrivals

    def _ring(self, arrived: dict[str, int]) -> None:
        """The turn is over: wake those for whom something arrived in it."""
        if arrived:
            self.lock.ring()
            self.arrived(arrived)

    def _transaction(self, batch: list[Call], wait: bool) -> tuple[WriteSession, list[Any]]:
        connection = self.connection() if wait else self._connection_at_once()
        try:
            session, answers = self._answered(connection, batch, wait)
        except sqlite3.OperationalError as error:
            if not is_undecodable(error):
                raise
            connection.execute("ROLLBACK")
            with reading_any_text(connection):
                session, answers = self._answered(connection, batch, wait)
        connection.execute("COMMIT")
        if self._log is not None:
            self._log.refuse_when_gone()
            self._log_is_empty = self._log_is_empty and self._log.is_empty()
        if self.durable:
            for call in batch:
                call.log = None if call.light else self._log
        if not self._checkpoint_due and self.checkpoint.is_due(self._log):
            self._checkpoint_due = True
            self._calls.put(Signal.LOOK)
        return session, answers

    def _answered(
        self, connection: sqlite3.Connection, batch: list[Call], wait: bool
    ) -> tuple[WriteSession, list[Any]]:
        """The answers of calls, in a transaction that is still open."""
        self._begin(connection, wait)
        session = WriteSession(connection, inline=not wait)
        answers = _together(session, batch)
        if answers is None:
            connection.execute("ROLLBACK")
            self._begin(connection, wait)
            session = WriteSession(connection, inline=not wait)
            answers = [_apart(connection, session, call) for call in batch]
        return session, answers

    def _connection_at_once(self) -> sqlite3.Connection:
        """The connection, if it is open, the file is still the same, and this is not the first commit of a log."""
        try:
            if self._connection is not None and not self._log_is_empty and self._identity == self._identity_now():
                return self._connection
        except OSError:
            pass
        raise WouldBlock

    def _begin(self, connection: sqlite3.Connection, wait: bool) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if not wait:
                raise WouldBlock from error
            connection.execute(f"PRAGMA busy_timeout = {SHORT_MS}")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise Locked(error) if is_busy(error) else error from error
            finally:
                connection.execute("PRAGMA busy_timeout = 0")

    # Afterwards

    def answer(self, batch: list[Call], answers: list[Any]) -> None:
        """Answer calls that were worked off, those that must survive a power cut when they do."""
        now: list[tuple[Call, Any]] = []
        for call, answer in zip(batch, answers, strict=True):
            if call.log is None:
                now.append((call, answer))
            else:
                self.wal_sync.submit(call, answer)
        deliver(now)

    def rest(self) -> None:
        if self._checkpoint_due:
            self._checkpoint_due = False
            self.checkpoint.make()


def _together(session: WriteSession, batch: list[Call]) -> list[Any] | None:
    """The answers of all calls, or None: one of them failed. Nearly none does, and savepoints cost as much as a job."""
    answers: list[Any] = []
    try:
        for call in batch:
            if call.future.cancelled():  # while it waited for its turn
                answers.append(None)
                continue
            answers.append(call.work(session))
            session.flush()
    except Exception as error:
        if _spoils_all(error):
            raise
        return None
    return answers


def _apart(connection: sqlite3.Connection, session: WriteSession, call: Call) -> Any:
    """The answer of one call, or how it failed, without a trace in the transaction."""
    if call.future.cancelled():
        return None
    connection.execute("SAVEPOINT call")
    arrived = dict(session.arrivals)
    try:
        answer = call.work(session)
        session.flush()
    except Exception as error:
        if _spoils_all(error):
            raise
        connection.execute("ROLLBACK TO call")
        connection.execute("RELEASE call")
        session.forget()
        session.arrivals = arrived
        return Failed(error)
    connection.execute("RELEASE call")
    return answer


def _spoils_all(error: Exception) -> bool:
    """Whether the store failed, rather than the call; or the call is not for this thread."""
    return isinstance(error, WouldBlock | sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError
    )
