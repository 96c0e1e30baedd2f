"""Checkpoints, outside of any commit: pages go from the -wal file to the database, and the file is begun anew.

SQLite would make one within a commit, which then takes as long as the disk takes. Here most of it is done beside
whoever writes. But the file is begun anew only if nothing at all is left in it: what came meanwhile, which is little,
is done while nobody may write, and so is the first commit of the new one, since that waits for the disk too.

It is not begun anew either while anybody reads from it, and short reads that overlap would keep it for ever. So a file
that has grown large waits for the reads of the moment, for a quarter of a second at most, while nobody may write. If
they last longer (a backup, a forgotten transaction), it is tried less and less often.
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

PAGES = 4000  # 16 MB: the same pages change again and again
LOOK = 16  # commits of this process from one look at the log's length to the next
AGAIN = 256  # commits after one that could not be made to the end: somebody reads, or another process makes it
LARGE = 16_000  # 64 MB: above this a checkpoint waits for those who read
WAIT_MS = 250  # for this long
SELDOM = 65_536  # commits after one that waited in vain, at the most: each time twice as many as before

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
CHECKPOINT_AFTER_READS = "PRAGMA wal_checkpoint(RESTART)"
BEGIN_ANEW = "UPDATE taskharbor_meta SET number = number + 1"  # one is left out; what changes nothing is not written


class Checkpointer:
    """Tells when one is due, and makes it, on a connection of its own."""

    def __init__(self, path: str, take_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        self._path = path
        self._take_turn = take_turn
        self._end_turn = end_turn
        self.guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._commits = 1  # until the next look: a process may make no more than one
        self._again = AGAIN

    def is_due(self, log: WalFile | None) -> bool:
        """After a commit: whether one is to be made."""
        self._commits -= 1
        if self._commits > 0 or log is None:
            return False
        self._commits = LOOK
        return log.holds_pages(PAGES)

    def make(self) -> bool:
        """Make one. False: it could not be done to the end, which harms nobody: the next one goes on with it."""
        self._commits = max(AGAIN, self._again)
        if not self._guarded(self._most):
            return False
        try:
            self._take_turn()  # without the guard: a fork may be made by whoever has the turn
        except DriverError:
            return False
        try:
            return self._guarded(self._rest)
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

    def _most(self, connection: sqlite3.Connection) -> bool:
        """Beside whoever writes. False: another process makes one."""
        return not connection.execute(CHECKPOINT).fetchone()[0]

    def _rest(self, connection: sqlite3.Connection) -> bool:
        """While nobody may write."""
        busy, written, moved = connection.execute(CHECKPOINT).fetchone()
        if written >= LARGE:
            busy, written, moved = self._after_reads(connection)
        if busy or written != moved:
            return False
        connection.execute(BEGIN_ANEW)
        self._commits, self._again = LOOK, AGAIN
        return True

    def _after_reads(self, connection: sqlite3.Connection) -> tuple[int, int, int]:
        """Wait for the reads of the moment, then make it. Nobody writes meanwhile: later reads go past the file."""
        self._commits = self._again = min(2 * self._again, SELDOM)
        connection.execute(f"PRAGMA busy_timeout = {WAIT_MS}")
        try:
            answer: tuple[int, int, int] = connection.execute(CHECKPOINT_AFTER_READS).fetchone()
            return answer
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        file_guard.close_safely(connection, self._path)
