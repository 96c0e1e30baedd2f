"""Which -wal file belongs to which database file, so that a restored file is never overlaid by an old log.

SQLite joins the two by their names alone. Where a backup takes the place of the file while the old -wal file is still
there (its process was killed, or runs on), SQLite would lay the old pages over the new file: restored jobs vanish, old
ones come back. So whoever opens the file for writing notes the pair in the lock file, and nobody opens a database file
whose -wal file is known to be another's.

A file that is overwritten in place (`cp backup.db jobs.db`) stays the same file for the system: that cannot be noticed.
"""

from __future__ import annotations

import ctypes
import os

from taskharbor.model.errors import BackendUnavailable

_PLACE = 16  # in the lock file; its first byte is what wakes those who wait for work
_SIZE = 256
_AT_FDCWD, _STATX_BTIME, _BTIME = -100, 0x800, 80  # <linux/stat.h>: where statx puts the time of birth
_libc = ctypes.CDLL(None, use_errno=True)


def check(path: str) -> None:
    """BackendUnavailable if the -wal file that stands beside a database file was written for another one."""
    try:
        with open(f"{path}-lock", "rb") as file:
            file.seek(_PLACE)
            database, _, log = file.read(_SIZE).rstrip(b"\0").partition(b" ")
        if not log or os.stat(f"{path}-wal").st_size == 0:
            return
        if log == _identity(f"{path}-wal") and database != _identity(path):
            raise BackendUnavailable(
                f"{path} was replaced, but {path}-wal still belongs to the file that stood there before: together they "
                f"would be neither. Stop every program that uses them, move {path}-wal and {path}-shm away, and start "
                "again. (What had not reached the old file yet is in that -wal file.)"
            )
    except FileNotFoundError:
        return


def note(lock_file: int, path: str) -> None:
    """Note the pair that is open now. Under the file's lock."""
    try:
        text = _identity(path) + b" " + _identity(f"{path}-wal")
        if os.pread(lock_file, _SIZE, _PLACE).rstrip(b"\0") != text:
            os.pwrite(lock_file, text.ljust(_SIZE, b"\0"), _PLACE)
    except OSError:
        pass  # a full disk: the pair stays unknown, and nobody is refused


def _identity(path: str) -> bytes:
    """A file's device, number and time of birth: a number alone is soon given to another file."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{_birth(path)}".encode()


def _birth(path: str) -> str:
    """When a file was made, or nothing where the system does not tell."""
    statx = getattr(_libc, "statx", None)
    if statx is None:
        return str(getattr(os.stat(path), "st_birthtime", ""))
    answer = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return ""
    if not int.from_bytes(answer.raw[:4], "little") & _STATX_BTIME:
        return ""
    return answer.raw[_BTIME : _BTIME + 12].hex()
