"""The -wal file: making what was committed survive a power cut, and starting the file over (checkpoints).

SQLite commits without a sync of its own (`synchronous = normal`). All commits stand in the -wal file in their order, so
one fdatasync after them makes all of them durable, those of other processes too. A durable call returns after that. If
a checkpoint comes in between, it has synced the file itself.

    a blocking call:   syncs on its own thread; calls that come meanwhile share the next sync
    a coroutine:       syncs on its event loop's thread if it is alone and the last syncs took less than 2 ms: that
                       costs less than two thread switches. Otherwise the sync thread does it, once for all that wait.
                       One slow sync is enough for that: a disk that hangs holds up an event loop once

A checkpoint moves pages from the -wal file to the database. SQLite would make it within a commit, which then takes as
long as the disk takes, on an event loop too. Here most of it is done while others write. But the -wal file starts over
only if nothing at all is left in it. So the little that came meanwhile is moved while no one may write, and so is the
first commit of the new file, since that waits for the disk too.

The file does not start over while anyone reads from it either, and reads that overlap would keep it for ever. So
the next writer to a file of 48 MB first waits for the reads of the moment, while no one may write. Our own reads end
when they are asked to, and begin anew under the lock (reader.py). So they cannot keep the file. A foreign one may (a
backup, a forgotten transaction): it is named in the log, and waited for less and less often.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.connection import BUSY_MS, FileConnection, unavailable
from taskharbor.drivers.sqlite.lock_holders import ReaderWarning
from taskharbor.drivers.sqlite.threads import Failed, PendingResult, WorkThread, deliver
from taskharbor.drivers.sqlite.turns import FileLock
from taskharbor.model.errors import BackendUnavailable, DriverError

INLINE_SYNC_BUDGET_S = 0.002  # after a longer sync on an event loop's thread, the sync thread does the next ones
SLOW_SYNC_SHARE = 0.02  # until such syncs have taken at most this share of the event loop's time
CROWD_S = 0.01  # the sync thread also does them for this long after several calls came at the same time

Results: TypeAlias = Sequence[tuple[PendingResult[Any], Any]]

sync_file: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync

CHECKPOINT_BYTES = 16_000_000  # the same pages change again and again
LARGE_BYTES = 48_000_000  # from here on no one writes before the file starts over: with a large transaction, 64 MB
COMMITS_BETWEEN_CHECKS = 16  # of the -wal file's length
RETRY_AFTER_COMMITS = 256  # if one was not completed: a read is under way, or another process makes one
READS_WAIT_MS = 1000  # for each reader's lock: our own reads have ended long before
OTHER_WAIT_S = 5.0  # for the checkpoint of another process, which is moving the pages that this one needs moved
MAX_RETRY_COMMITS = 65_536  # if it waited in vain: each time twice as many as before, up to this

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
CHECKPOINT_AFTER_READS = "PRAGMA wal_checkpoint(RESTART)"
START_OVER = (
    "UPDATE taskharbor_meta SET number = number + 1"  # skips a number: an UPDATE without a change writes nothing
)


class WalFile:
    """The -wal file of an open connection: the same file as long as that is open. Closed when unreferenced."""

    _close = staticmethod(os.close)  # which still exists when the interpreter ends

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(path)
        self._is_name_synced = False
        self._file = -1
        self._file = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        self._path = path
        self._database = _identity(path)
        self._identity = _identity(self._file)
        self._counting = threading.Lock()
        self._asked = 0  # syncs that were asked for
        self._synced = 0  # of those, the last one that a sync has served

    def __del__(self) -> None:
        if self._file >= 0:
            self._close(self._file)

    def ask(self) -> int:
        """Ask for a sync of all that was committed before this call; returns its number."""
        with self._counting:
            self._asked += 1
            return self._asked

    def is_served(self, number: int) -> bool:
        """Whether a sync has served the one that asked under this number."""
        return self._synced >= number

    def sync(self) -> None:
        """Return when all that was committed before this call is on the disk. One thread at a time."""
        serves = self._asked
        self._sync_name()
        sync_file(self._file)
        self._synced = serves

    def _sync_name(self) -> None:
        """Make the file's entry in its folder durable, once."""
        if not self._is_name_synced:
            folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._is_name_synced = True

    def is_empty(self) -> bool:
        """Whether nothing was ever written to it: then the first commit waits for the disk, whatever is set."""
        return os.fstat(self._file).st_size == 0

    def refuse_when_gone(self) -> None:
        """After a commit: BackendUnavailable if it went to a file that no one else sees. It must not be reported as
        done."""
        if _identity(f"{self._path}-wal") == self._identity:
            return
        if _identity(self._path) != self._database:  # then SQLite does no harm, and the next call opens the new file
            raise BackendUnavailable(f"{self._path}: the file was replaced while it was written to")
        file_guard.mark_unusable(self._path, file_guard.WAL_REMOVED)
        raise file_guard.unusable(self._path)

    def holds(self, size: int) -> bool:
        """Whether it holds this many bytes since it was last begun anew: each frame bears the salt of its time."""
        head = os.pread(self._file, 24, 0)
        frame_bytes, salt = int.from_bytes(head[8:12], "big") + 24, head[16:24]
        return os.pread(self._file, 8, 32 + size // frame_bytes * frame_bytes + 8) == salt != b""


def _identity(file: str | int) -> tuple[int, int] | None:
    """Which file this is; None if it does not exist."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class WalSync:
    """Syncs for calls. `rescue` saves in another way what a sync failed to write."""

    def __init__(self, path: str, rescue: Callable[[], bool]) -> None:
        self._path = path
        self._rescue = rescue
        self._syncing = threading.Lock()
        self._is_in_doubt = False  # a sync is under way, or the last one failed; changed by the thread that syncs
        self._thread: WorkThread[tuple[WalFile, Results]] = WorkThread("taskharbor-sqlite-sync", self._sync_for)
        self._counting = threading.Lock()
        self._others = 0  # coroutines in `wait`
        self._inline_from = math.inf  # when a coroutine may sync on its loop's thread: not before the disk is known

    def sync(self, wal: WalFile) -> None:
        """Sync on this thread; BackendUnavailable if that fails."""
        try:
            self._sync_shared(wal)
        except Exception as error:
            raise unavailable(self._path, error) from error

    async def wait(self, wal: WalFile, inline: bool) -> None:
        """Sync for a coroutine. `inline`: it may be done on the thread of its event loop."""
        began = time.monotonic()
        if inline and self._others:
            self._inline_from = max(self._inline_from, began + CROWD_S)
        is_inline = inline and began >= self._inline_from and not self._is_in_doubt
        with self._counting:
            self._others += 1
        try:
            if is_inline:
                self.sync(wal)
                await asyncio.sleep(0)  # calls that are ready now go to the thread, and share one sync
            else:
                pending: PendingResult[None] = PendingResult()
                self.submit(wal, [(pending, None)])
                await pending.future
        finally:
            with self._counting:
                self._others -= 1

    def submit(self, wal: WalFile, results: Results) -> None:
        """Deliver results of a transaction when it is on the disk."""
        self._thread.put((wal, results))

    def stop(self) -> None:
        """Sync for those that wait, and end the thread."""
        self._thread.stop()

    def _sync_for(self, waiting: list[tuple[WalFile, Results]]) -> None:
        """One sync for all that wait together."""
        failed: Failed | None = None
        try:
            for wal in {wal for wal, _ in waiting}:
                self._sync_shared(wal)
        except Exception as error:
            failed = Failed(unavailable(self._path, error))
        deliver([(pending, failed or result) for _, results in waiting for pending, result in results])

    def _sync_shared(self, wal: WalFile) -> None:
        """Sync, unless another thread's sync that began after this call was asked for has served it too."""
        number = wal.ask()
        with self._syncing:
            if wal.is_served(number):
                return
            # What one sync failed to write the next one may leave out without a word: it must go another way. That
            # holds for a thread that waited here meanwhile, too: its commit may be among what was left out.
            if self._is_in_doubt and not self._rescue():
                raise OSError(errno.EIO, "a sync of its -wal file has failed")
            self._is_in_doubt = True
            began = time.monotonic()
            wal.sync()
            self._note_speed(began)
            self._is_in_doubt = False

    def _note_speed(self, began: float) -> None:
        ended = time.monotonic()
        if ended - began > INLINE_SYNC_BUDGET_S:
            self._inline_from = ended + (ended - began) / SLOW_SYNC_SHARE
        elif self._inline_from == math.inf:
            self._inline_from = ended


class Checkpointer:
    """Decides when a checkpoint is due, and makes it, on a connection of its own."""

    def __init__(self, path: str, lock: FileLock, take_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        self._lock = lock
        self._take_turn = take_turn
        self._end_turn = end_turn
        self._warning = ReaderWarning(path)
        self.file = FileConnection(path)
        self._commits = 1  # until the next check: a process may make no more than one
        self._patience = 0  # writes that do not wait for a foreign reader
        self._again = RETRY_AFTER_COMMITS

    def is_due(self, wal: WalFile | None) -> bool:
        """After a commit: whether to make one."""
        self._commits -= 1
        if self._commits > 0 or wal is None:
            return False
        self._commits = COMMITS_BETWEEN_CHECKS
        return wal.holds(CHECKPOINT_BYTES)

    def is_full(self, wal: WalFile | None) -> bool:
        """Before a write: whether to make room first."""
        if self._patience:
            self._patience -= 1
            return False
        return wal is not None and wal.holds(LARGE_BYTES)

    def make(self) -> bool:
        """Make one. False: it was not completed, which does no harm: the next one goes on with it."""
        self._commits = RETRY_AFTER_COMMITS
        if not self._guarded(self._move_most):
            return False
        try:
            self._take_turn()  # without the guard: the thread that has the turn may fork
        except DriverError:
            return False
        try:
            return self._guarded(self._move_rest)
        finally:
            self._end_turn()

    def make_room(self) -> None:
        """In this process's turn, while no one may write: start the file over when the reads of the moment end."""
        if self._guarded(self._after_reads):
            self._again = RETRY_AFTER_COMMITS
            self._warning.forget()
        else:
            self._patience = self._again = min(2 * self._again, MAX_RETRY_COMMITS)
            self._warning.check()

    def _guarded(self, work: Callable[[sqlite3.Connection], bool]) -> bool:
        with self.file.guard:
            try:
                return work(self.file.get())
            except Exception:
                self.file.disconnect()
                return False

    def _move_most(self, connection: sqlite3.Connection) -> bool:
        """While others write. False: another process makes one."""
        busy, _, _ = connection.execute(CHECKPOINT).fetchone()
        return not busy

    def _move_rest(self, connection: sqlite3.Connection) -> bool:
        """While no one may write."""
        busy, written, moved = connection.execute(CHECKPOINT).fetchone()
        if busy or written != moved:
            return False
        connection.execute(START_OVER)
        self._commits = COMMITS_BETWEEN_CHECKS
        return True

    def _after_reads(self, connection: sqlite3.Connection) -> bool:
        """The same, but wait for the reads of the moment. Later ones do not need the file: no one writes meanwhile."""
        connection.execute(f"PRAGMA busy_timeout = {READS_WAIT_MS}")
        try:
            # The second time for those that began before all pages were moved.
            return any(self._is_complete_after_reads(connection) for _ in range(2)) and self._move_rest(connection)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _is_complete_after_reads(self, connection: sqlite3.Connection) -> bool:
        self._lock.ask_reads_to_end()
        until = time.monotonic() + OTHER_WAIT_S
        busy, written, _ = connection.execute(CHECKPOINT_AFTER_READS).fetchone()
        while busy and written < 0 and time.monotonic() < until:  # another process makes one: it is not waited for
            time.sleep(0.005)
            busy, written, _ = connection.execute(CHECKPOINT_AFTER_READS).fetchone()
        return not busy
