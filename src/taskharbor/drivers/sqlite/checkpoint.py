"""Checkpoints, outside of any commit: pages go from the -wal file to the database, and the -wal file starts over.

SQLite would make a checkpoint within a commit, which then takes as long as the disk takes, on an event loop too. Here
most of it is done while others write. But the -wal file starts over only if nothing at all is left in it. So the little
that came meanwhile is moved while no one may write, and so is the first commit of the new file, since that waits for
the disk too.

The file does not start over while anyone reads from it either, and short reads that overlap would keep it for ever. So
a large file waits for the reads of the moment, for a quarter of a second at most, while no one may write. If they last
longer (a backup, a forgotten transaction), it is tried less and less often.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.connection import BUSY_MS, connect
from taskharbor.model.errors import DriverError

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.wal import WalFile

CHECKPOINT_PAGES = 4000  # 16 MB: the same pages change again and again
COMMITS_BETWEEN_CHECKS = 16  # of the -wal file's length
RETRY_AFTER_COMMITS = 256  # if one was not completed: a read is under way, or another process makes one
LARGE_PAGES = 16_000  # 64 MB: from here on a checkpoint waits for reads
READS_WAIT_MS = 250  # for this long
MAX_RETRY_COMMITS = 65_536  # if it waited in vain: each time twice as many as before, up to this

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
CHECKPOINT_AFTER_READS = "PRAGMA wal_checkpoint(RESTART)"
START_OVER = (
    "UPDATE taskharbor_meta SET number = number + 1"  # skips a number: an UPDATE without a change writes nothing
)


class Checkpointer:
    """Decides when a checkpoint is due, and makes it, on a connection of its own."""

    def __init__(self, path: str, take_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        self._path = path
        self._take_turn = take_turn
        self._end_turn = end_turn
        self.guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._commits = 1  # until the next check: a process may make no more than one
        self._again = RETRY_AFTER_COMMITS

    def is_due(self, wal: WalFile | None) -> bool:
        """After a commit: whether to make one."""
        self._commits -= 1
        if self._commits > 0 or wal is None:
            return False
        self._commits = COMMITS_BETWEEN_CHECKS
        return wal.holds_pages(CHECKPOINT_PAGES)

    def make(self) -> bool:
        """Make one. False: it was not completed, which does no harm: the next one goes on with it."""
        self._commits = max(RETRY_AFTER_COMMITS, self._again)
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

    def _guarded(self, work: Callable[[sqlite3.Connection], bool]) -> bool:
        with self.guard:
            try:
                if self._connection is None:
                    self._connection = connect(self._path, "normal")
                return work(self._connection)
            except Exception:
                self.disconnect()
                return False

    def _move_most(self, connection: sqlite3.Connection) -> bool:
        """While others write. False: another process makes one."""
        return not connection.execute(CHECKPOINT).fetchone()[0]

    def _move_rest(self, connection: sqlite3.Connection) -> bool:
        """While no one may write."""
        busy, written, moved = connection.execute(CHECKPOINT).fetchone()
        if written >= LARGE_PAGES:
            busy, written, moved = self._after_reads(connection)
        if busy or written != moved:
            return False
        connection.execute(START_OVER)
        self._commits, self._again = COMMITS_BETWEEN_CHECKS, RETRY_AFTER_COMMITS
        return True

    def _after_reads(self, connection: sqlite3.Connection) -> tuple[int, int, int]:
        """Wait for the reads of the moment, then make it. No one writes meanwhile: later reads do not need the file."""
        self._commits = self._again = min(2 * self._again, MAX_RETRY_COMMITS)
        connection.execute(f"PRAGMA busy_timeout = {READS_WAIT_MS}")
        try:
            state: tuple[int, int, int] = connection.execute(CHECKPOINT_AFTER_READS).fetchone()
            return state
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        file_guard.close_safely(connection, self._path)
