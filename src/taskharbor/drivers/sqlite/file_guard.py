"""When a process must not touch a database file, because SQLite would silently lose data.

1. The process has lost its locks. SQLite keeps its notes about the locks of a file in the process, for all connections
   together, and two events make them untrue for good:
   - The process was forked while a connection was open, as a handler's transaction keeps one. The child has a copy of
     the notes, but not the locks.
   - The -wal file was removed under an open connection. SQLite would go on with a file that no one else can see.
   Then nothing may be written, and nothing may be closed either: at the last close SQLite would write what it has into
   the database, over what others have written since. Every call is refused, and connections are left to the kernel.
2. The -wal file belongs to another database file. SQLite joins the two by name alone. Where a backup takes the place
   of the database while the old -wal file is still there (its process was killed, or still runs), SQLite would lay old
   pages over the new file: restored jobs vanish, old ones come back. So a process that opens the file for writing
   records both in the lock file, and none opens a database whose -wal file is known to be another's. A file that is
   overwritten in place (`cp backup.db jobs.db`) stays the same file for the system: that goes unnoticed.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3

from taskharbor.model.errors import BackendUnavailable

FORKED = (
    "this process was forked while a transaction of a handler (ctx.transaction()) was open, and SQLite's connections "
    "do not survive a fork: start processes with `subprocess`, with multiprocessing's `spawn` or `forkserver`, or "
    "outside of transactions"
)
WAL_REMOVED = (
    "its -wal file was removed while this process used it, and what this process has written since then is lost: "
    "restart it. Either the file was removed from outside, or this process lost its locks: on POSIX systems it does as "
    "soon as it opens the database other than through SQLite (open(), shutil.copy) and closes it again, or uses a "
    "connection that was made before a fork"
)

_OWNER_AT = 16  # in the lock file; writing its first byte wakes other processes
_OWNER_BYTES = 256
_AT_FDCWD, _STATX_BTIME, _BIRTH_AT = -100, 0x800, 80  # <linux/stat.h>: where statx puts the time of birth
_libc = ctypes.CDLL(None, use_errno=True)

_why_unusable: dict[str, str] = {}


def mark_unusable(path: str, why: str) -> None:
    """From now on this process refuses to use the file."""
    _why_unusable[path] = why


def check_usable(path: str) -> None:
    """BackendUnavailable if this process must not use the file."""
    if path in _why_unusable:
        raise unusable(path)


def unusable(path: str) -> BackendUnavailable:
    """The error of every call from then on."""
    return lasting(f"{path}: {_why_unusable[path]}")


def lasting(text: str) -> BackendUnavailable:
    """An error that waiting does not help against."""
    error = BackendUnavailable(text)
    error.lasting = True
    return error


def close_safely(connection: sqlite3.Connection | None, path: str) -> None:
    """Close a connection, unless that would do harm."""
    if connection is None:
        return
    if path in _why_unusable:
        leave_open(connection)
        return
    try:
        connection.close()
    except sqlite3.Error:
        pass


def leave_open(connection: sqlite3.Connection) -> None:
    """Make sure that a connection is never closed: not by the garbage collector, nor when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


# The owner of a -wal file


def check_wal_owner(path: str) -> None:
    """BackendUnavailable if the -wal file beside a database file was written for another database file."""
    try:
        with open(f"{path}-lock", "rb") as file:
            file.seek(_OWNER_AT)
            database, _, log = file.read(_OWNER_BYTES).rstrip(b"\0").partition(b" ")
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


def note_wal_owner(lock_file: int, path: str) -> None:
    """Record which -wal file belongs to the database file that is open now. The caller holds the lock file."""
    try:
        text = _identity(path) + b" " + _identity(f"{path}-wal")
        if os.pread(lock_file, _OWNER_BYTES, _OWNER_AT).rstrip(b"\0") != text:
            os.pwrite(lock_file, text.ljust(_OWNER_BYTES, b"\0"), _OWNER_AT)
    except OSError:
        pass  # a full disk: the owner stays unknown, and no one is refused


def _identity(path: str) -> bytes:
    """A file's device, inode and time of birth: an inode alone is soon given to another file."""
    found = os.stat(path)
    return f"{found.st_dev}:{found.st_ino}:{_birth(path)}".encode()


def _birth(path: str) -> str:
    """When a file was created; empty where the system does not say."""
    statx = getattr(_libc, "statx", None)
    if statx is None:
        return str(getattr(os.stat(path), "st_birthtime", ""))
    buffer = ctypes.create_string_buffer(256)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return ""
    if not int.from_bytes(buffer.raw[:4], "little") & _STATX_BTIME:
        return ""
    return buffer.raw[_BIRTH_AT : _BIRTH_AT + 12].hex()
