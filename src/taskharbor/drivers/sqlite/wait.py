"""Hearing of other processes: a thread that sleeps until the file changes, while anybody waits for work.

The lock file is written to after each commit that brought work, so a change of it is worth a look at once. The -wal
file also changes when an application commits an enqueue in its own transaction, but for everything else as well, and
before the change can be read: its writer syncs in between, which takes as long as the disk takes. So it is looked at
a few milliseconds later, and again after twice as many, until a commit is seen. Where there is no inotify, `PRAGMA
data_version` is asked instead, every 20 ms, at a few microseconds each.
"""

from __future__ import annotations

import os
import select
import sqlite3
import threading
import time
from collections.abc import Callable

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.connection import connect
from taskharbor.drivers.sqlite.inotify import Inotify, inotify

SETTLE = 0.004  # from a change of the -wal file to the first look at it
POLL = 0.02  # without inotify
BELL = -1  # no file's number
REST = 1.0  # with it: a hint that was lost all the same costs no more


class FileWatch:
    """The thread. `wanted` says for which queues anybody waits, `heard` is told what arrived in them."""

    def __init__(
        self, path: str, lock_path: str, wanted: Callable[[], list[str]], heard: Callable[[dict[str, int]], None]
    ) -> None:
        self.path = path
        self._lock_path = lock_path
        self._wanted = wanted
        self._heard = heard
        self._bell, self._ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopping = False
        self._inotify: Inotify | None = None
        self._lock = self._wal = 0  # the numbers of the two files while they are watched
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
        self._inotify = inotify()
        try:
            while not self._stopping:
                if not self._wanted():
                    self._unwatch()
                    self._sleep(None)
                elif self._inotify is None:
                    self._sleep(POLL)
                    self._look()
                elif not self._lock:
                    self._watch()
                    self._look()  # what came before the watch began
                    self._pause = SETTLE if self._wal else POLL  # and what was being written
                else:
                    self._round()
        finally:
            self.disconnect()
            self._unwatch()
            if self._inotify is not None:
                self._inotify.let_go()

    def _watch(self) -> None:
        """Be told of both files, of the -wal file once: it is written to several times for each commit."""
        assert self._inotify is not None
        if not self._lock:
            self._lock = self._inotify.watch(self._lock_path)
            if not self._lock:  # the lock file has gone, or the system's limit is reached
                self._inotify.let_go()
                self._inotify = None
                return
        if not self._wal:
            self._wal = self._inotify.watch(f"{self.path}-wal", once=True)

    def _unwatch(self) -> None:
        for number in (self._lock, self._wal):
            if self._inotify is not None and number:
                self._inotify.forget(number)
        self._lock = self._wal = 0

    def _round(self) -> None:
        changed = self._sleep(self._pause)
        if changed and not changed & {BELL, self._lock}:
            if self._wal in changed:  # and not an event of a watch that is over
                self._wal, self._pause = 0, SETTLE
            return
        if self._wal in changed:
            self._wal = 0
        self._watch()
        if self._look():
            self._pause = REST
        else:
            self._pause = min(2 * self._pause, REST)

    def _sleep(self, timeout: float | None) -> set[int]:
        """Until the bell is rung, a file changes, or the time is over; answers the numbers of those."""
        files = [self._bell] if self._inotify is None else [self._bell, self._inotify.file]
        ready = select.select(files, [], [], timeout)[0]
        changed = self._inotify.changed() if self._inotify is not None and self._inotify.file in ready else set()
        if self._bell in ready:
            try:
                os.read(self._bell, 65536)
            except BlockingIOError:
                pass
            changed.add(BELL)
        return changed

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
        except Exception:  # whatever it is, the thread must live on: a process has one
            with self.guard:
                self.disconnect()
            time.sleep(POLL)
            return True
        self._heard(dict(rows))
        return True

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        file_guard.close_safely(connection, self.path)
