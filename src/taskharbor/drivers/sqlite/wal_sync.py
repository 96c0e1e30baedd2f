"""What was committed reaches the disk: one sync for all calls that wait for it, while others go on writing.

SQLite commits without a sync of its own (`synchronous = normal`). All commits stand in the -wal file in their order, so
one fdatasync of it, after them, makes all of them durable: those of other processes too. A call that must survive a
power cut is answered after that. A checkpoint that comes in between has synced the file itself.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.connection import unavailable
from taskharbor.drivers.sqlite.threads import Call, Failed, deliver
from taskharbor.model.errors import BackendUnavailable

sync_file: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class WalFile:
    """The -wal file of an open connection: it is the same as long as that is. Closed with the last reference."""

    _close = staticmethod(os.close)  # which is still there when the interpreter ends

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(path)
        self._named = False  # whether its name in the folder is on the disk
        self._file = -1
        self._file = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._path = path
        self._database = _identity(path)
        self._identity = _identity(self._file)

    def __del__(self) -> None:
        if self._file >= 0:
            self._close(self._file)

    def sync(self) -> None:
        if not self._named:
            folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._named = True
        sync_file(self._file)

    def is_empty(self) -> bool:
        """Whether nothing was ever written to it: the first commit then waits for the disk, whatever is set."""
        return os.fstat(self._file).st_size == 0

    def refuse_when_gone(self) -> None:
        """After a commit: BackendUnavailable if it went to a file that nobody else sees: it must not be answered."""
        if _identity(f"{self._path}-wal") == self._identity:
            return
        if _identity(self._path) != self._database:  # then SQLite does no harm, and the next call opens what is there
            raise BackendUnavailable(f"{self._path}: the file was replaced while it was written to")
        file_guard.mark_unusable(self._path, file_guard.WAL_REMOVED)
        raise file_guard.unusable(self._path)

    def holds(self, pages: int) -> bool:
        """Whether so many pages were written to it since it was begun anew: each bears the mark of its time."""
        head = os.pread(self._file, 24, 0)
        size, mark = int.from_bytes(head[8:12], "big"), head[16:24]
        return os.pread(self._file, 8, 32 + (pages - 1) * (size + 24) + 8) == mark != b""


def _identity(file: str | int) -> tuple[int, int] | None:
    """Which file stands there; None if there is none."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class WalSync:
    """The thread that waits for the disk. `rescue` is asked to save what could not be synced another way."""

    def __init__(self, path: str, rescue: Callable[[], bool]) -> None:
        self._path = path
        self._rescue = rescue
        self._failed = False
        self._work: queue.SimpleQueue[tuple[Call, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="taskharbor-sqlite-wal_sync", daemon=True)
        self._thread.start()

    def submit(self, call: Call, answer: Any) -> None:
        """Answer a call, which is committed, once it is on the disk."""
        self._work.put((call, answer))

    def stop(self) -> None:
        """Work off what waits, then end the thread."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            waiting: list[tuple[Call, Any]] = []
            try:
                while item is not None:
                    waiting.append(item)
                    item = self._work.get_nowait()
            except queue.Empty:
                pass
            failed = self._sync({call.log for call, _ in waiting})
            deliver(waiting if failed is None else [(call, failed) for call, _ in waiting])
            if item is None:
                break

    def _sync(self, logs: set[WalFile | None]) -> Failed | None:
        try:
            # What one sync failed to write the next one may leave out and say nothing: it must go another way.
            if self._failed and not self._rescue():
                raise OSError(errno.EIO, "a sync of its -wal file has failed")
            self._failed = False
            for log in logs:
                if log is not None:
                    log.sync()
        except Exception as error:
            self._failed = True
            return Failed(unavailable(self._path, error))
        return None
