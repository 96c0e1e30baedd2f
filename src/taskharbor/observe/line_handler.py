"""Writes whole lines to a stream that several processes share.

A pipe takes at most 4 KiB in one piece (PIPE_BUF); the parts of a longer write may be mixed with what other processes
write. So a line is written under a lock on the pipe itself, which all processes that have the pipe share:

    locked? ──no──► write
       └─yes──► the pipe is full, its reader slow: wait, as a write would
                the pipe has room, but the lock stays: a writer is stopped, or a handler holds its interpreter.
                After a second write without the lock, and do not wait for that writer again for 30 s

Files and terminals take every write in one piece.
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

MAX_LOCKED_S = 1.0  # for which another writer may hold the lock of a pipe that has room
STUCK_WRITER_S = 30.0  # until a stuck writer is waited for again
POLL_INTERVALS_S = (0.0005, 0.01)  # while the reader is quick, and while it is slow


class WholeLineHandler(logging.StreamHandler[TextIO]):
    """Writes each record in one piece, also to a pipe or socket that other such handlers write to."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._wait_again_at = 0.0  # when to wait for a stuck writer again

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. Never raises, as with every handler."""
        stream = self.stream
        if sys.platform == "win32" or not isinstance(
            stream, io.TextIOWrapper
        ):  # an object of the program's own, not a pipe
            return super().emit(record)
        try:
            line = self.format(record) + self.terminator
            try:
                number = stream.fileno()
            except (OSError, ValueError):  # it has no file descriptor, or is closed
                stream.write(line)
                return self.flush()
            stream.flush()  # so that earlier output stays earlier
            data = line.encode(stream.encoding, stream.errors or "strict")
            with self._locked(number):
                _write(number, data)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    @contextmanager
    def _locked(self, number: int) -> Iterator[None]:
        mode = os.fstat(number).st_mode
        locked = (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) and self._lock(number)
        try:
            yield
        finally:
            if locked:
                fcntl.lockf(number, fcntl.LOCK_UN)

    def _lock(self, number: int) -> bool:
        quick, slow = POLL_INTERVALS_S
        since = time.monotonic()  # when the pipe last had no room
        while True:
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                pass
            except OSError:
                return False  # this system cannot lock pipes
            else:
                self._wait_again_at = 0.0
                return True
            now = time.monotonic()
            if not _has_room(number):
                since = now
                time.sleep(slow)
            elif now < self._wait_again_at:
                return False
            elif now - since > MAX_LOCKED_S:
                self._wait_again_at = now + STUCK_WRITER_S
                return False
            else:
                time.sleep(quick)


def _has_room(number: int) -> bool:
    """Whether the pipe has room, or its reader is gone."""
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
        except BlockingIOError:  # another process that shares it made it non-blocking
            _poll(number).poll()
