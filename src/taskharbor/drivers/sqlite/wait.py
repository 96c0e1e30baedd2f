"""Waiting for work: a thread that notices what other processes commit.

The lock file is written to after each commit that brought work, so a change of it is worth a check at once. The -wal
file also changes when an application commits an enqueue in its own transaction. But it changes on unrelated writes too,
and before the commit is visible, because the writer syncs in between. So it is checked 4 ms after a change, and again
after twice as long, until a commit is seen. Where there is no inotify, `PRAGMA data_version` is polled every 20 ms, at
a few microseconds each.

Closing a descriptor of inotify waits for the kernel, 10 to 30 ms as a rule; adding and removing a file costs
microseconds. So a descriptor that is no longer needed is kept for the next user.
"""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
import threading
import time

from taskharbor.drivers.sqlite.connection import FileConnection
from taskharbor.drivers.wait_calls import WaitCalls

WAL_SETTLES_S = 0.004  # from a change of the -wal file to the first check
POLL_S = 0.02  # without inotify
CHECK_ANYWAY_S = 1.0  # with inotify: what a lost event costs at most
WOKEN = -1  # beside the numbers of watched files
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_MODIFY, _ONCE = 0x2, 0x8000_0000
_EVENT = 16  # bytes of an event about a file; the first four say which


class FileWatch:
    """The thread that sleeps until the file changes, while any call waits for work."""

    def __init__(self, path: str, lock_path: str, waits: WaitCalls) -> None:
        self.path = path
        self._lock_path = lock_path
        self._waits = waits
        self._wakeable, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_stopping = False
        self._inotify: Inotify | None = None
        self._lock_watch = self._wal_watch = 0  # the numbers of the two files while they are watched
        self.file = FileConnection(path, self._opened)
        self._version = -1
        self._pause = CHECK_ANYWAY_S  # until the next check, if nothing changes before
        self._thread = threading.Thread(target=self._run, name="taskharbor-sqlite-watch", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            os.close(self._wakeable)
            os.close(self._waker)
            raise

    def wake(self) -> None:
        """A call waits now."""
        try:
            os.write(self._waker, b"!")
        except BlockingIOError:
            pass  # it was woken often enough

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping = True
        self.wake()
        self._thread.join()
        # Not in the thread: it may end before `wake` writes, and the descriptor would be another file's by then.
        os.close(self._wakeable)
        os.close(self._waker)

    def _run(self) -> None:
        self._inotify = inotify()
        try:
            while not self._is_stopping:
                if not self._waits.queues():
                    self._unwatch()
                    self._sleep(None)
                elif self._inotify is None:
                    self._sleep(POLL_S)
                    self._check()
                elif not self._lock_watch:
                    self._watch()
                    self._check()  # what came before the watch began
                    self._pause = WAL_SETTLES_S if self._wal_watch else POLL_S  # and what was being written
                else:
                    self._sleep_and_check()
        finally:
            self.file.disconnect()
            self._unwatch()
            if self._inotify is not None:
                self._inotify.let_go()

    def _watch(self) -> None:
        """Watch both files; the -wal file for one change only, because each commit writes to it several times."""
        assert self._inotify is not None
        if not self._lock_watch:
            self._lock_watch = self._inotify.watch(self._lock_path)
            if not self._lock_watch:  # the lock file is gone, or the system's limit of watches is reached
                self._inotify.let_go()
                self._inotify = None
                return
        if not self._wal_watch:
            self._wal_watch = self._inotify.watch(f"{self.path}-wal", once=True)

    def _unwatch(self) -> None:
        for number in (self._lock_watch, self._wal_watch):
            if self._inotify is not None and number:
                self._inotify.forget(number)
        self._lock_watch = self._wal_watch = 0

    def _sleep_and_check(self) -> None:
        changed = self._sleep(self._pause)
        if changed and not changed & {WOKEN, self._lock_watch}:
            if self._wal_watch in changed:  # and not an event of a watch that is over
                self._wal_watch, self._pause = 0, WAL_SETTLES_S
            return
        if self._wal_watch in changed:
            self._wal_watch = 0
        self._watch()
        if self._check():
            self._pause = CHECK_ANYWAY_S
        else:
            self._pause = min(2 * self._pause, CHECK_ANYWAY_S)

    def _sleep(self, timeout: float | None) -> set[int]:
        """Until `wake`, a change of a file, or the timeout; returns the numbers of the files, and WOKEN."""
        files = [self._wakeable] if self._inotify is None else [self._wakeable, self._inotify.file]
        ready = select.select(files, [], [], timeout)[0]
        changed = self._inotify.changed() if self._inotify is not None and self._inotify.file in ready else set()
        if self._wakeable in ready:
            try:
                os.read(self._wakeable, 65536)
            except BlockingIOError:
                pass
            changed.add(WOKEN)
        return changed

    def _check(self) -> bool:
        """Wake the calls for which work has arrived. False: nothing was committed since the last check."""
        names = self._waits.queues()
        if not names or self._is_stopping:
            return True
        try:
            with self.file.guard:
                connection = self.file.get()
                version = connection.execute("PRAGMA data_version").fetchone()[0]
                if version == self._version:
                    return False
                self._version = version
                marks = ", ".join("?" * len(names))
                rows = connection.execute(
                    f"SELECT name, arrived FROM taskharbor_queues WHERE name IN ({marks})", names
                ).fetchall()
        except Exception:  # whatever it is, the thread must live on: a process has one for each file
            with self.file.guard:
                self.file.disconnect()
            time.sleep(POLL_S)
            return True
        self._waits.wake(dict(rows))
        return True

    def _opened(self, connection: sqlite3.Connection) -> None:
        self._version = -1


class Inotify:
    """Linux's inotify, over ctypes: a descriptor that is readable once one of its files was written to."""

    def __init__(self, libc: ctypes.CDLL, file: int) -> None:
        self._libc = libc
        self.file = file

    def watch(self, path: str, once: bool = False) -> int:
        """Watch a file; returns its number, 0 if it cannot be watched. `once`: until the first write."""
        flags = _MODIFY | _ONCE if once else _MODIFY
        return max(int(self._libc.inotify_add_watch(self.file, os.fsencode(path), ctypes.c_uint32(flags))), 0)

    def forget(self, number: int) -> None:
        self._libc.inotify_rm_watch(self.file, number)

    def changed(self) -> set[int]:
        """The numbers of the files that were written to since the last call, or forgotten."""
        try:
            events = os.read(self.file, 65536)
        except BlockingIOError:
            return set()
        return {int.from_bytes(events[at : at + 4], "little") for at in range(0, len(events), _EVENT)}

    def let_go(self) -> None:
        """Give back a descriptor that watches nothing."""
        if _spare:
            os.close(self.file)
        else:
            _spare.append(self)


_spare: list[Inotify] = []


def _after_fork_in_child() -> None:
    while _spare:
        os.close(_spare.pop().file)  # an event that the child reads is lost to the parent


os.register_at_fork(after_in_child=_after_fork_in_child)


def inotify() -> Inotify | None:
    """A descriptor that watches nothing yet, or None if the platform has no inotify."""
    try:
        return _spare.pop()
    except IndexError:
        pass
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.inotify_init1(_FLAGS))
    except (AttributeError, OSError):
        return None
    return Inotify(libc, file) if file >= 0 else None
