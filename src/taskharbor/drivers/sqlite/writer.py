"""Writing to the file. A call runs in one of three places, always in this process's turn and under the file lock:

    a coroutine's small call, if nothing would block:   on the event loop's thread (`try_inline`)
    any other call of a coroutine:                      on the writer's thread, with all that wait, in one transaction
    a blocking call:                                    on the calling thread (`write_here`)

Handing a small call to another thread costs more than running it, so it runs inline, but only if nothing would block:
no lock, no sync, no checkpoint. If writing takes long all the same, the writer's thread does it for a while.

In a transaction of many calls, one that fails must not spoil the others: the transaction is rolled back and begun anew,
with a savepoint before each call. No call returns before the commit.

Three things keep writers apart. The turn: one caller of this process at a time. The file lock: one process at a time.
The guard: no other thread uses the connection, and no fork happens while it is used.
"""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from taskharbor.drivers.sqlite.connection import LOCK_TIMEOUT_S, FailureLog, FileConnection, is_busy, unavailable
from taskharbor.drivers.sqlite.damage import is_undecodable, reading_any_text
from taskharbor.drivers.sqlite.lock_holders import locked_out
from taskharbor.drivers.sqlite.session import WouldBlock, WriteSession
from taskharbor.drivers.sqlite.threads import Call, CallThread, Failed, Signal, deliver
from taskharbor.drivers.sqlite.turns import FileLock, IsInterrupted, Turns
from taskharbor.drivers.sqlite.wal import LARGE_BYTES, Checkpointer, WalFile, WalSync
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")

INLINE_BUDGET_S = 0.05  # after an inline call that took longer, no call runs inline ...
INLINE_PAUSE_S = 0.5  # ... for this long: the writer's thread does them
STEPS_BETWEEN_CHECKS = 10_000  # of SQLite's virtual machine: some 0.1 ms
FOREIGN_WRITER_WAIT_MS = 250  # for which the guard is kept while a program without our lock writes to the file


# A transaction that was committed: the result of a call, and the file to be synced before a durable call returns. None:
# the store does not promise durability.
Written: TypeAlias = tuple[T, WalFile | None]


class LockedByOther(Exception):
    """A program that does not use our lock file writes to the database: try again a little later."""

    def __init__(self, error: sqlite3.OperationalError) -> None:
        self.error = error


class Writer:
    """The connection that writes, the turns at it, and what keeps the -wal file in order.

    `on_open` prepares a connection that was just opened; `on_arrivals` receives the queues that got work.
    """

    def __init__(
        self,
        path: str,
        durable: bool,
        on_open: Callable[[sqlite3.Connection], None],
        on_arrivals: Callable[[dict[str, int]], None],
    ) -> None:
        self.path = path
        self.durable = durable
        self.lock = FileLock(path)
        self.turns = Turns(path)
        self.file = FileConnection(path, self._opened)
        self.checkpoint = Checkpointer(path, self.lock, self.take_turn, self.end_turn)
        self.wal_sync = WalSync(path, self.checkpoint.make)
        self.thread: CallThread[WriteSession] = CallThread(
            "taskharbor-sqlite-writer", self._run_batch, self._checkpoint_if_due
        )
        self._on_open = on_open
        self._on_arrivals = on_arrivals
        self._failures = FailureLog()
        self._wal: WalFile | None = None
        self._wal_is_empty = False
        self._is_checkpoint_due = False
        self._inline_from = 0.0  # when a call may run inline again
        self._inline_deadline = math.inf  # when SQLite gives up an inline call, which the writer's thread repeats

    def _opened(self, connection: sqlite3.Connection) -> None:
        self._on_open(connection)
        self.lock.note_wal_owner(self.path)
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # a commit on a caller's thread must never make one
        connection.set_progress_handler(lambda: time.monotonic() > self._inline_deadline, STEPS_BETWEEN_CHECKS)
        self._wal = WalFile(self.path)
        self._wal_is_empty = self._wal.is_empty()

    @property
    def guard(self) -> threading.Lock:
        """Held while the connection is used."""
        return self.file.guard

    def disconnect(self) -> None:
        """Close the connection. Under the guard."""
        self._wal = None
        self.file.disconnect()

    def stop(self) -> None:
        """Do what waits, make it durable, and close everything."""
        self.thread.stop()
        with self.file.guard:
            self.disconnect()
        self.wal_sync.stop()
        with self.checkpoint.file.guard:
            self.checkpoint.file.disconnect()
        self.lock.close()

    # Turns

    def take_turn(self, timeout: float | None = None, is_interrupted: IsInterrupted | None = None) -> None:
        """Wait for this process's turn, then for the lock between processes; BackendUnavailable after `timeout`."""
        timeout = LOCK_TIMEOUT_S if timeout is None else timeout
        if not self.turns.try_take():
            self.turns.take(timeout, is_interrupted)
        self.take_lock(timeout, is_interrupted)

    def take_lock(self, timeout: float | None = None, is_interrupted: IsInterrupted | None = None) -> None:
        """In this process's turn: wait for the lock between processes. If it does not come, the turn is over."""
        try:
            self.lock.acquire(LOCK_TIMEOUT_S if timeout is None else timeout, is_interrupted)
        except BaseException:
            self.turns.end()
            raise

    def end_turn(self) -> None:
        """Give the lock and the turn back."""
        self.lock.release()
        self.turns.end()

    def _try_take_turn(self) -> bool:
        if not self.turns.try_take():
            return False
        if self.lock.try_acquire():
            return True
        self.turns.end()
        return False

    def is_full(self) -> bool:
        """Whether the -wal file is larger than any read of ours could make it."""
        return self._wal is not None and self._wal.holds(LARGE_BYTES)

    def make_room(self) -> None:
        """In the turn, before anything is written: keep the -wal file within its bound."""
        if self.checkpoint.is_full(self._wal):
            self.checkpoint.make_room()

    # One call

    def try_inline(self, work: Callable[[WriteSession], T]) -> Written[T] | None:
        """Run a call on the thread of an event loop; None if anything would block."""
        began = time.monotonic()
        if not self.thread.is_idle() or not self.file.is_open() or began < self._inline_from:
            return None
        if not self.file.guard.acquire(blocking=False):
            return None
        try:
            if not self._try_take_turn():
                return None
            try:
                self._inline_deadline = began + INLINE_BUDGET_S
                session, result = self._transaction(partial(self._run_call, work, True), True)
            finally:
                self.end_turn()
        except WouldBlock:
            return None
        except BaseException as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                self._inline_from = began + INLINE_PAUSE_S
                return None
            self._fail(error)
        finally:
            self._inline_deadline = math.inf
            self.file.guard.release()
        self._report(session.arrivals)
        if time.monotonic() - began > INLINE_BUDGET_S:
            self._inline_from = began + INLINE_PAUSE_S
        return result, self._wal if self.durable else None

    def write_here(
        self, work: Callable[[WriteSession], T], deadline: float, is_interrupted: IsInterrupted | None = None
    ) -> Written[T]:
        """Run a call on this thread, and wait for whatever is in the way until `deadline`."""
        try:
            return self._write(partial(self._run_call, work, False), deadline, is_interrupted)
        except BaseException as error:
            if is_interrupted is not None and is_interrupted():
                raise  # the caller gets what the signal handler raised, and the store has not failed
            self._fail(error)

    def _write(
        self,
        run: Callable[[sqlite3.Connection], tuple[WriteSession, T]],
        deadline: float | None = None,
        is_interrupted: IsInterrupted | None = None,
    ) -> Written[T]:
        """Commit what `run` does, in this process's turn; wait for whatever is in the way until `deadline`."""
        left = None if deadline is None else min(max(deadline - time.monotonic(), 0), LOCK_TIMEOUT_S)
        self.take_turn(left, is_interrupted)
        try:
            self.make_room()
            until = time.monotonic() + LOCK_TIMEOUT_S if deadline is None else deadline
            session, result = self._when_unlocked(run, until)
            wal = self._wal if self.durable else None
        finally:
            self.end_turn()
        self._report(session.arrivals)
        return result, wal

    def _run_call(
        self, work: Callable[[WriteSession], T], inline: bool, connection: sqlite3.Connection
    ) -> tuple[WriteSession, T]:
        """The result of a call, in a transaction that is still open."""
        self._begin(connection, inline)
        session = WriteSession(connection, inline)
        result = work(session)
        session.flush()
        return session, result

    # Many calls

    def _run_batch(self, batch: list[Call[WriteSession, Any]]) -> Callable[[], None]:
        try:
            results, wal = self._write(partial(self._run_calls, batch))
        except BaseException as error:
            failed = Failed(self._failure(error))
            return partial(deliver, [(call, failed) for call in batch])
        return partial(self._deliver, list(zip(batch, results, strict=True)), wal)

    def _deliver(self, results: list[tuple[Call[WriteSession, Any], Any]], wal: WalFile | None) -> None:
        """Deliver results: those of durable calls when they are on the disk."""
        durable = [pair for pair in results if pair[0].durable] if wal is not None else []
        deliver([pair for pair in results if wal is None or not pair[0].durable])
        if wal is not None and durable:
            self.wal_sync.submit(wal, durable)

    def _run_calls(
        self, batch: list[Call[WriteSession, Any]], connection: sqlite3.Connection
    ) -> tuple[WriteSession, list[Any]]:
        """The results of calls, in a transaction that is still open."""
        self._begin(connection, inline=False)
        session = WriteSession(connection)
        results = _run_together(session, batch)
        if results is None:
            connection.execute("ROLLBACK")
            self._begin(connection, inline=False)
            session = WriteSession(connection)
            results = [self._run_apart(connection, session, call) for call in batch]
        return session, results

    def _run_apart(self, connection: sqlite3.Connection, session: WriteSession, call: Call[WriteSession, Any]) -> Any:
        """The result of one call, or how it failed, without a trace in the transaction."""
        if call.future.cancelled():
            return None
        connection.execute("SAVEPOINT call")
        arrivals = dict(session.arrivals)
        try:
            result = call.work(session)
            session.flush()
        except Exception as error:
            if _fails_all(error):
                raise
            connection.execute("ROLLBACK TO call")
            connection.execute("RELEASE call")
            session.forget()
            session.arrivals = arrivals
            return Failed(unavailable(self.path, error) if isinstance(error, sqlite3.Error) else error)
        connection.execute("RELEASE call")
        return result

    # The parts of a transaction

    def _transaction(self, run: Callable[[sqlite3.Connection], T], inline: bool = False) -> T:
        """Commit what `run` does in a transaction that it begins. In this process's turn, under the guard."""
        try:
            connection = self.file.get_if_open() if inline else self.file.get()
            # An inline call neither opens the file nor makes the first commit of a -wal file, which waits for the disk,
            # nor a checkpoint.
            if connection is None or (inline and (self._wal_is_empty or self.checkpoint.is_full(self._wal))):
                raise WouldBlock
            try:
                result = run(connection)
            except sqlite3.OperationalError as error:
                if not is_undecodable(error):
                    raise
                connection.execute("ROLLBACK")
                with reading_any_text(connection):
                    result = run(connection)
            self._commit(connection)
        except BaseException as error:
            self.file.recover(error)
            raise
        return result

    def _when_unlocked(self, run: Callable[[sqlite3.Connection], T], deadline: float) -> T:
        """A transaction under the guard; again while another program has the database locked."""
        began = time.monotonic()
        while True:
            try:
                with self.file.guard:
                    return self._transaction(run)
            except LockedByOther as locked:
                if time.monotonic() > deadline:
                    waited = round(time.monotonic() - began, 1)
                    raise BackendUnavailable(locked_out(self.path, waited)) from locked.error
                time.sleep(0.001)  # or a thread that waits for the guard would never get it

    def _begin(self, connection: sqlite3.Connection, inline: bool) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if inline:
                raise WouldBlock from error
            connection.execute(f"PRAGMA busy_timeout = {FOREIGN_WRITER_WAIT_MS}")
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise LockedByOther(error) if is_busy(error) else error from error
            finally:
                connection.execute("PRAGMA busy_timeout = 0")

    def _commit(self, connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")
        if self._wal is not None:
            self._wal.refuse_when_gone()
            self._wal_is_empty = self._wal_is_empty and self._wal.is_empty()
            if not self._is_checkpoint_due and self.checkpoint.is_due(self._wal):
                self._is_checkpoint_due = True
                with suppress(BackendUnavailable):  # without a thread it is made when the file is full
                    self.thread.put(Signal.WAKE)

    def _report(self, arrivals: dict[str, int]) -> None:
        """A call succeeded, and the turn is over: wake those that wait for what arrived."""
        self._failures.note(None)
        if arrivals:
            self.lock.wake_others()
            self._on_arrivals(arrivals)

    def _failure(self, error: BaseException) -> BaseException:
        """What a caller gets for an error that is not its own."""
        failure = unavailable(self.path, error) if isinstance(error, sqlite3.Error | OSError) else error
        self._failures.note(failure)
        return failure

    def _fail(self, error: BaseException) -> NoReturn:
        raise self._failure(error)

    def _checkpoint_if_due(self) -> None:
        if self._is_checkpoint_due:
            self._is_checkpoint_due = False
            self.checkpoint.make()


def _run_together(session: WriteSession, batch: list[Call[WriteSession, Any]]) -> list[Any] | None:
    """The results of all calls. None: one of them failed. Nearly none does, and savepoints cost as much as a job."""
    results: list[Any] = []
    try:
        for call in batch:
            if call.future.cancelled():  # while it waited for its turn
                results.append(None)
                continue
            results.append(call.work(session))
            session.flush()
    except Exception as error:
        if _fails_all(error):
            raise
        return None
    return results


def _fails_all(error: Exception) -> bool:
    """Whether the store failed, rather than the call."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError
    )
