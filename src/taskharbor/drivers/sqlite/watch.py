"""Hearing of other processes: a thread that sleeps until the file changes, while anybody waits for work.

The lock file is written to after each commit that brought work, so a change of it is worth a look at once. The -wal
file also changes when an application commits an enqueue in its own transaction, but for everything else as well, and
before the change can be read: its writer syncs in between, which takes as long as the disk takes. So it is looked at
a few milliseconds later, and again after twice as many, until a commit is seen. Where there is no inotify, `PRAGMA
data_version` is asked instead, every 20 ms, at a few microseconds each.
"""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import threading
import time
from collections.abc import Callable

from taskharbor.drivers.sqlite.connect import connect

_IN_MODIFY, _FLAGS = 0x2, os.O_NONBLOCK | os.O_CLOEXEC
SETTLE = 0.004  # from a change of the -wal file to the first look at it
POLL = 0.02  # without inotify
REST = 1.0  # with it: a hint that was lost all the same costs no more


def inotify(path: str) -> int | None:
    """A descriptor that is readable once the file was written to, or None where that is not to be had."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.inotify_init1(_FLAGS))
        if file < 0:
            return None
        if libc.inotify_add_watch(file, os.fsencode(path), _IN_MODIFY) < 0:
            os.close(file)
            return None
    except (AttributeError, OSError):
        return None
    return file


class Watch:
    """The thread. `wanted` says for which queues anybody waits, `heard` is told what arrived in them."""

    def __init__(
        self, path: str, lock_path: str, wanted: Callable[[], list[str]], heard: Callable[[dict[str, int]], None]
    ) -> None:
        self.path = path
        self._lock_path = lock_path
        self._wanted = wanted
        self._heard = heard
        self._bell, self._ringer = os.pipe2(_FLAGS)
        self._stopping = False
        self.use_inotify = True
        self.guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._pause = REST  # until the next look, if nothing changes before
        self._thread = threading.Thread(target=self._run, name="taskharbor-sqlite-watch", daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Somebody waits now."""
        try:
            os.write(self._ringer, b"!")
        except BlockingIOError:
            pass  # it was rung often enough

    def stop(self) -> None:
        self._stopping = True
        self.ring()
        self._thread.join()
        # Not in the thread: it may end before it is rung for, and the number would be another file's by then.
        os.close(self._bell)
        os.close(self._ringer)

    def _run(self) -> None:
        files: list[int] = []
        try:
            while not self._stopping:
                if not self._wanted():
                    self._close(files)
                    self._sleep([self._bell], None)
                    continue
                if not files and self.use_inotify:
                    files += [file for path in (self._lock_path, f"{self.path}-wal") if (file := inotify(path))]
                    self._look()  # what came before the watch began
                    self._pause = SETTLE  # and what was being written
                    if not files:
                        self.use_inotify = False
                self._round(files)
        finally:
            self._close(files)
            self.disconnect()

    def _round(self, files: list[int]) -> None:
        if not files:
            self._sleep([self._bell], POLL)
            self._look()
            return
        lock, *wal = files
        changed = self._sleep([self._bell, lock, *(wal if self._pause > SETTLE else ())], self._pause)
        if changed and changed == wal:
            self._pause = SETTLE
        elif self._look():
            self._pause = REST
        else:
            self._pause = min(2 * self._pause, REST)

    def _sleep(self, files: list[int], timeout: float | None) -> list[int]:
        changed = select.select(files, [], [], timeout)[0]
        for file in changed:
            try:
                os.read(file, 65536)
            except BlockingIOError:
                pass
        return changed

    def _close(self, files: list[int]) -> None:
        for file in files:
            os.close(file)
        files.clear()

    def _look(self) -> bool:
        """Tell what arrived; False if nothing was committed since the last look."""
        names = self._wanted()
        if not names or self._stopping:
            return True
        try:
            with self.guard:
                if self._connection is None:
                    self._connection = connect(self.path, "normal")
                    self._version = -1
                version = self._connection.execute("PRAGMA data_version").fetchone()[0]
                if version == self._version:
                    return False
                self._version = version
                marks = ", ".join("?" * len(names))
                rows = self._connection.execute(
                    f"SELECT name, arrived FROM taskharbor_queues WHERE name IN ({marks})", names
                ).fetchall()
        except sqlite3.Error:
            with self.guard:
                self.disconnect()
            time.sleep(POLL)
            return True
        self._heard(dict(rows))
        return True

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass
