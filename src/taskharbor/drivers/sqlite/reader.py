"""Reading beside the writer, each call from one snapshot: one connection and, for coroutines, one thread.

A read that lasts keeps the -wal file from starting over, and reads that overlap would keep it for ever. So when the
file is large, the next writer asks the reads of the moment to end (wal.py). One that goes on for longer than a moment
is stopped, and begins anew under the lock: no one writes meanwhile, so nobody asks it again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from taskharbor.drivers.sqlite.connection import LOCK_TIMEOUT_S, FailureLog, FileConnection, unavailable
from taskharbor.drivers.sqlite.damage import is_undecodable, reading_any_text
from taskharbor.drivers.sqlite.session import ReadSession
from taskharbor.drivers.sqlite.threads import Call, CallThread, Failed, deliver
from taskharbor.drivers.sqlite.writer import STEPS_BETWEEN_CHECKS, Writer
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")

MOMENT_NS = 100_000_000  # for which a read goes on after it was asked to end
TURN_WAIT_S = 2.0  # for the lock, to begin anew. Not longer: its holder may be a handler that waits for this very read


class _Stopped(Exception):
    """A read was in the way of a checkpoint."""


class Reader:
    """One connection that reads, for all callers in this process."""

    def __init__(self, writer: Writer, name: str) -> None:
        self._writer = writer
        self._began = 0  # when the read under way did, in nanoseconds of the monotonic clock
        self.file = FileConnection(writer.path, self._opened)
        self.thread: CallThread[ReadSession] = CallThread(f"taskharbor-sqlite-{name}", self._run_batch)
        self._failures = FailureLog()

    def _opened(self, connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(self._is_in_the_way, STEPS_BETWEEN_CHECKS)

    def _is_in_the_way(self) -> bool:
        asked = self._writer.lock.reads_asked_to_end_at()
        return self._began < asked < time.monotonic_ns() - MOMENT_NS

    def stop(self) -> None:
        """Do what waits, and close the connection."""
        self.thread.stop()
        with self.file.guard:
            self.file.disconnect()

    def read_here(self, work: Callable[[ReadSession], T], deadline: float) -> T:
        """The result of a call, on this thread."""
        try:
            return self._guarded(work, min(max(deadline - time.monotonic(), 0), LOCK_TIMEOUT_S))
        except (sqlite3.Error, OSError) as error:
            raise unavailable(self.file.path, error) from error

    def _run_batch(self, batch: list[Call[ReadSession, Any]]) -> Callable[[], None]:
        results: list[Any] = []
        for call in batch:
            try:
                results.append(self._guarded(call.work, LOCK_TIMEOUT_S))
            except (sqlite3.Error, OSError) as error:
                results.append(Failed(unavailable(self.file.path, error)))
            except BaseException as error:
                results.append(Failed(error))
        for result in results:
            self._failures.note(result.error if isinstance(result, Failed) else None)
        return partial(deliver, list(zip(batch, results, strict=True)))

    def _guarded(self, work: Callable[[ReadSession], T], timeout: float) -> T:
        """The result of a call; begun anew under the lock if it is in the way of a checkpoint."""
        try:
            return self._read(work, timeout)
        except _Stopped:
            pass
        try:
            self._writer.take_turn(TURN_WAIT_S)
        except BackendUnavailable:
            return self._read(work, timeout, stoppable=False)
        try:
            return self._read(work, timeout)
        finally:
            self._writer.end_turn()

    def _read(self, work: Callable[[ReadSession], T], timeout: float, *, stoppable: bool = True) -> T:
        if not self.file.guard.acquire(timeout=timeout):
            raise BackendUnavailable(f"{self.file.path}: other reads of this process took too long")
        try:
            self._began = time.monotonic_ns() if stoppable else 1 << 63
            return self._on_snapshot(self.file.get(), work)
        except sqlite3.Error as error:
            self.file.recover(error)
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                raise _Stopped from error
            raise
        finally:
            self.file.guard.release()

    def _on_snapshot(self, connection: sqlite3.Connection, work: Callable[[ReadSession], T]) -> T:
        connection.execute("BEGIN")
        try:
            try:
                return work(ReadSession(connection))
            except sqlite3.OperationalError as error:
                if not is_undecodable(error):
                    raise
            with reading_any_text(connection):
                return work(ReadSession(connection))
        finally:
            if connection.in_transaction:  # SQLite may have rolled back by itself: the cause is what counts
                connection.execute("ROLLBACK")
