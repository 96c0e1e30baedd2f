"""Files that this process can no longer use, and why. SQLite keeps what it knows of a file's locks in the process, for
all connections together, and two events make that untrue for good:

- The process was forked while a connection was open, which a transaction of a handler keeps open. The child has copied
  the notes about locks, but not the locks.
- The -wal file was removed under an open connection. SQLite would go on with a file that nobody else can see.

Nothing may be written then, and nothing may be closed either: at the last close SQLite would bring what it has into the
database, over what others have written since. So every call is refused, and the connections are left to the kernel.
"""

from __future__ import annotations

import ctypes
import sqlite3

from taskharbor.model.errors import BackendUnavailable

FORKED = (
    "this process was forked while a transaction of a handler (ctx.transaction()) was open, and SQLite's connections "
    "do not survive a fork: start processes with `subprocess`, with multiprocessing's `spawn` or `forkserver`, or "
    "outside of transactions"
)
LOG_REMOVED = (
    "its -wal file was removed while this process used it, and what this process has written since then is lost: "
    "restart it. Either somebody removed the file, or this process lost its locks: on POSIX systems it does as soon as "
    "it opens the database other than through SQLite (open(), shutil.copy) and closes it again, or uses a connection "
    "that was made before a fork"
)

_why: dict[str, str] = {}


def spoil(path: str, why: str) -> None:
    """This process must not use the file any more."""
    _why[path] = why


def check(path: str) -> None:
    """BackendUnavailable if this process must not use the file."""
    if path in _why:
        raise refused(path)


def refused(path: str) -> BackendUnavailable:
    error = BackendUnavailable(f"{path}: {_why[path]}")
    error.lasting = True
    return error


def close(connection: sqlite3.Connection | None, path: str) -> None:
    """Close a connection, unless that would do harm."""
    if connection is None:
        return
    if path in _why:
        leave_open(connection)
        return
    try:
        connection.close()
    except sqlite3.Error:
        pass


def leave_open(connection: sqlite3.Connection) -> None:
    """Never close a connection: not even when nothing refers to it, nor when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
