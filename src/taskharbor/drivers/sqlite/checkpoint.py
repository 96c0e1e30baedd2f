"""Checkpoints, outside of any commit: pages go from the -wal file to the database, and the file is begun anew.

SQLite would make one within a commit, which then takes as long as the disk takes. Here most of it is done beside
whoever writes. But the file is begun anew only if nothing at all is left in it: what came meanwhile, which is little,
is done while nobody may write, and so is the first commit of the new one, since that waits for the disk too.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from taskharbor.drivers.sqlite.connect import connect

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.flush import Log

PAGES = 4000  # 16 MB: the same pages change again and again
LOOK = 16  # commits of this process from one look at the log's length to the next
AGAIN = 256  # commits after one that could not be made to the end: somebody reads, or another process makes it

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
BEGIN_ANEW = "UPDATE taskharbor_meta SET number = number + 1"  # one is left out; what changes nothing is not written


class Checkpoint:
    """Tells when one is due, and makes it, on a connection of its own."""

    def __init__(self, path: str, take_turn: Callable[[], None], end_turn: Callable[[], None]) -> None:
        self._path = path
        self._take_turn = take_turn
        self._end_turn = end_turn
        self.guard = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._commits = 1  # until the next look: a process may make no more than one

    def is_due(self, log: Log | None) -> bool:
        """After a commit: whether one is to be made."""
        self._commits -= 1
        if self._commits > 0 or log is None:
            return False
        self._commits = LOOK
        return log.holds(PAGES)

    def make(self) -> bool:
        """Make one. False: it could not be done to the end, which harms nobody: the next one goes on with it."""
        self._commits = AGAIN
        with self.guard:
            try:
                if self._connection is None:
                    self._connection = connect(self._path, "normal")
                if self._connection.execute(CHECKPOINT).fetchone()[0]:
                    return False
                self._take_turn()
                try:
                    busy, written, moved = self._connection.execute(CHECKPOINT).fetchone()
                    if not busy and written == moved:
                        self._connection.execute(BEGIN_ANEW)
                        self._commits = LOOK
                        return True
                finally:
                    self._end_turn()
            except Exception:
                self.disconnect()
        return False

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                pass
