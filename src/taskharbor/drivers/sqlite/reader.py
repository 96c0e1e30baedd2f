"""Reading beside the writer: each call from one snapshot, on the reader's thread or on the calling one."""

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
from taskharbor.model.errors import BackendUnavailable

T = TypeVar("T")


class Reader:
    """One connection and, for coroutines, one thread."""

    def __init__(self, path: str) -> None:
        self.file = FileConnection(path)
        self.thread: CallThread[ReadSession] = CallThread("taskharbor-sqlite-reader", self._run_batch)
        self._failures = FailureLog()

    def stop(self) -> None:
        """Do what waits, and close the connection."""
        self.thread.stop()
        with self.file.guard:
            self.file.disconnect()

    def read_here(self, work: Callable[[ReadSession], T], deadline: float) -> T:
        """The result of a call, on this thread."""
        if not self.file.guard.acquire(timeout=min(max(deadline - time.monotonic(), 0), LOCK_TIMEOUT_S)):
            raise BackendUnavailable(f"{self.file.path}: other reads of this process took too long")
        try:
            return self._read(self.file.get(), work)
        except sqlite3.Error as error:
            self.file.recover(error)
            raise unavailable(self.file.path, error) from error
        finally:
            self.file.guard.release()

    def _run_batch(self, batch: list[Call[ReadSession, Any]]) -> Callable[[], None]:
        results: list[Any] = []
        with self.file.guard:
            for call in batch:
                try:
                    results.append(self._read(self.file.get(), call.work))
                except sqlite3.Error as error:
                    self.file.recover(error)
                    results.append(Failed(unavailable(self.file.path, error)))
                except BaseException as error:
                    results.append(Failed(error))
        for result in results:
            self._failures.note(result.error if isinstance(result, Failed) else None)
        return partial(deliver, list(zip(batch, results, strict=True)))

    def _read(self, connection: sqlite3.Connection, work: Callable[[ReadSession], T]) -> T:
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
