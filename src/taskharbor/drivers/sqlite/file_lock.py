"""The lock beside the file, `<file>-lock`: an advisory lock (flock) that every writer takes before SQLite's own.

SQLite lets waiting processes sleep and try again, so one may wait for seconds behind luckier ones; the kernel wakes a
flock's waiters at once, in turn. It is for fairness only: whoever does not take it (the application's own connections)
is kept apart by SQLite all the same. A flock cannot be waited for with a limit, so a thread of its own waits where the
lock is not free at once, and whoever asked gives up after a while: a process may have been stopped while it held it.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading

from taskharbor.drivers.sqlite import file_guard
from taskharbor.model.errors import BackendUnavailable


class _Turn:
    """One wait for the lock."""

    def __init__(self) -> None:
        self.come = threading.Event()
        self.given_up = False


class FileLock:
    """The lock, for the threads of one owner, one at a time. Writing to it wakes those who wait for work."""

    def __init__(self, path: str) -> None:
        self.path = f"{path}-lock"
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._guard = threading.Lock()
        self._turns: queue.SimpleQueue[_Turn | None] = queue.SimpleQueue()
        self._waiting = 0  # turns that the thread has not come to the end of
        self._thread: threading.Thread | None = None

    def acquire_at_once(self) -> bool:
        """Take the lock if nobody has it or waits for it."""
        if not self._guard.acquire(blocking=False):
            return False
        try:
            return not self._waiting and self._at_once()
        finally:
            self._guard.release()

    def acquire(self, patience: float) -> None:
        """Take the lock, or say after so many seconds who has it."""
        with self._guard:
            # While the thread waits for somebody who gave up, it would take our lock for its own, and let it go.
            if not self._waiting and self._at_once():
                return
            turn = _Turn()
            self._turns.put(turn)
            self._waiting += 1
            if self._thread is None:
                name = "taskharbor-sqlite-lock"
                self._thread = threading.Thread(target=self._wait, args=(self._file,), name=name, daemon=True)
                self._thread.start()
        if not turn.come.wait(patience):
            with self._guard:
                turn.given_up = not turn.come.is_set()
            if turn.given_up:
                raise BackendUnavailable(
                    f"{self.path}: {self._holder()} has held it for {patience:g} s: it was stopped, or is inside a "
                    "long `ctx.transaction()`. Nobody can write to the file until it goes on or ends."
                )

    def _at_once(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, file: int) -> None:
        while (turn := self._turns.get()) is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
            with self._guard:
                self._waiting -= 1
                if turn.given_up:
                    fcntl.flock(file, fcntl.LOCK_UN)
                else:
                    turn.come.set()
        os.close(file)

    def _holder(self) -> str:
        """Who has the lock, where the system tells."""
        try:
            node = os.fstat(self._file).st_ino
            with open("/proc/locks", encoding="ascii", errors="replace") as file:
                rows = [line.split() for line in file]
        except OSError:
            return "another process"
        for row in rows:
            if len(row) > 5 and row[1] == "FLOCK" and row[5].endswith(f":{node}") and row[4].isdigit():
                return f"process {row[4]}"
        return "another process"

    def release(self) -> None:
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def ring(self) -> None:
        """After a commit: a change of this file is seen by other processes, and what they read then is committed."""
        try:
            os.pwrite(self._file, b"!", 0)
        except OSError:  # a full disk costs a hint, never a job
            pass

    def note_pair(self, path: str) -> None:
        """Note in it which -wal file belongs to which database file. While the lock is held."""
        file_guard.note_wal_owner(self._file, path)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's, also if that dies with it."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def close(self) -> None:
        """Let go of the file; if the thread still waits for somebody who gave up, it does so later."""
        file, self._file = self._file, -1
        if self._thread is not None:
            self._turns.put(None)
        elif file >= 0:
            os.close(file)
