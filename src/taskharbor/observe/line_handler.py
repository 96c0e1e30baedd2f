"""Whole lines on a stream that several processes write to.

A pipe takes at most 4 KiB in one piece (PIPE_BUF); what is longer may be torn apart by what others write meanwhile. So
a line is written under a lock on the pipe itself, which every process that has it finds by itself:

    locked? ──no──► write
       └─yes──► the reader is slow (the pipe is full): wait, as a write would
                it takes what comes, and yet nobody lets go: a writer is stopped, or a handler holds its interpreter.
                After a second write all the same, and do not wait for that writer again for a while

Files and terminals take every write in one piece by themselves.
"""

from __future__ import annotations

import io
import logging
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

if sys.platform != "win32":
    import fcntl

STUCK = 1.0  # seconds for which a writer may hold the lock while nothing holds it up
AGAIN = 30.0  # seconds until a stuck one is waited for again
PAUSES = (0.0005, 0.01)  # seconds between two looks: while the reader is quick, and while it is slow


class WholeLineHandler(logging.StreamHandler[TextIO]):
    """Writes each record in one piece, even if other processes write to the same pipe or socket in the same way."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._not_before = 0.0  # from when on a stuck writer is waited for again

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Never raises, as with every handler."""
        stream = self.stream
        if sys.platform == "win32" or not isinstance(stream, io.TextIOWrapper):  # no pipe, but a program's own object
            return super().emit(record)
        try:
            line = self.format(record) + self.terminator
            try:
                number = stream.fileno()
            except (OSError, ValueError):  # it writes to no file, or it is closed
                stream.write(line)
                return self.flush()
            stream.flush()  # what was printed before comes before
            data = line.encode(stream.encoding, stream.errors or "strict")
            with self._alone(number):
                _write(number, data)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    @contextmanager
    def _alone(self, number: int) -> Iterator[None]:
        mode = os.fstat(number).st_mode
        locked = (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and self._lock(number)
        try:
            yield
        finally:
            if locked:
                fcntl.lockf(number, fcntl.LOCK_UN)

    def _lock(self, number: int) -> bool:
        quick, slow = PAUSES
        seen = time.monotonic()  # since when another process holds it although it could write
        while True:
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                pass
            except OSError:
                return False  # a system that locks no pipes
            else:
                self._not_before = 0.0
                return True
            now = time.monotonic()
            if not _takes(number):
                seen = now
                time.sleep(slow)
            elif now < self._not_before:
                return False
            elif now - seen > STUCK:
                self._not_before = now + AGAIN
                return False
            else:
                time.sleep(quick)


def _takes(number: int) -> bool:
    """Whether the pipe has room, or nobody reads it any more."""
    return bool(_poll(number).poll(0))


def _poll(number: int) -> select.poll:
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return poll


def _write(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:  # a process that shares it made it non-blocking
            _poll(number).poll()
