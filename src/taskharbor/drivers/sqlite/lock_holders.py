"""Which processes hold locks of a database: what an operator needs to know when writers wait, or the -wal file grows.

SQLite locks bytes of the -shm file, which the kernel lists with the process. Only that list is read: a process that
opened the -shm file itself and closed it would drop SQLite's locks.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

logger = logging.getLogger("taskharbor.drivers.sqlite")

_WRITER = range(120, 121)  # the bytes of the -shm file that SQLite locks: to write
_READERS = range(124, 128)  # and to read from the -wal file, which cannot start over meanwhile
_LOOKS, _BETWEEN_LOOKS_S = 4, 0.05  # at who reads


def _holders(file: str, kind: str, places: range | None = None) -> set[int]:
    """The processes that have a lock of this kind on a file, where the system says. `places`: on one of these bytes."""
    try:
        inode = os.stat(file).st_ino
        with open("/proc/locks", encoding="ascii", errors="replace") as listed:
            rows = [line.split() for line in listed]
    except OSError:
        return set()
    found = set()
    for row in rows:
        if len(row) < 8 or row[1] != kind or not row[4].isdigit() or not row[5].endswith(f":{inode}"):
            continue  # of something else, or a line that the kernel writes another way
        if places is None or (row[6].isdigit() and int(row[6]) in places):
            found.add(int(row[4]))
    return found


def locked_out(path: str, seconds: float) -> str:
    """The refusal of a caller that could not write for this long."""
    ours, writing = _holders(f"{path}-lock", "FLOCK"), _holders(f"{path}-shm", "POSIX", _WRITER)
    if os.getpid() in writing:  # by a connection that is not ours: this call has just failed to get the lock
        return (
            f"{path}: a transaction of this process, on a connection of its own, has kept it locked for {seconds:g} s. "
            "If it is the caller's, enqueue in it with options(connection=...), or after its commit: it cannot end "
            "while its caller waits here, and no process can write to the file meanwhile"
        )
    if foreign := writing - ours:  # then the process that has our lock waits itself
        who = f"{_named(foreign)}, a program that writes to the file past TaskHarbor,"
    else:
        who = _named(ours) or "another process"
    return (
        f"{path}: {who} has kept it locked for {seconds:g} s: it was stopped, or is inside a long transaction. No "
        "process can write to the file until it goes on or ends."
    )


def _readers(path: str) -> set[int]:
    return _holders(f"{path}-shm", "POSIX", _READERS)


def _reader_text(path: str, processes: set[int]) -> str:
    size = os.stat(f"{path}-wal").st_size // 1_000_000
    return (
        f"{_named(processes) or 'a program'} keeps a read transaction open on {path}: its -wal file holds {size} MB "
        "and grows with every write until that transaction ends; end it"
    )


async def staying_readers(path: str) -> list[str]:
    """One sentence about the programs that go on reading, if there are any."""
    staying = _readers(path)
    for _ in range(_LOOKS):  # a read of ours ends meanwhile
        await asyncio.sleep(_BETWEEN_LOOKS_S)
        staying &= _readers(path)
    return [_reader_text(path, staying)] if staying or not sys.platform.startswith("linux") else []


def _named(processes: set[int]) -> str:
    """The processes, each with the name of its program."""
    return ", ".join(_name(pid) for pid in sorted(processes))


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f"process {pid} ({file.read().strip()})"
    except OSError:
        return f"process {pid}"


class ReaderWarning:
    """Logs once that the -wal file could not start over, until it could."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_logged = False

    def check(self) -> None:
        """It could not, although all reads of ours have ended."""
        if not self._is_logged:
            self._is_logged = True
            try:
                logger.warning("%s", _reader_text(self._path, _readers(self._path)))
            except OSError:  # the file is gone
                pass

    def forget(self) -> None:
        """It has started over."""
        self._is_logged = False
