"""Opening the database file: its mode, its pragmas, what SQLite's errors mean, and which file systems are unsafe."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from urllib.parse import quote

from taskharbor.drivers.sqlite import file_guard
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.scarcity import USED_UP

logger = logging.getLogger("taskharbor.drivers.sqlite")

OLDEST_SQLITE = (3, 38, 0)  # RETURNING came with 3.35, JSON without a compile option with 3.38
LOCK_TIMEOUT_S = 30.0  # seconds after which a store that is locked counts as unavailable

BUSY_MS = 5000  # for which SQLite retries by itself
_NETWORK = ("nfs", "cifs", "smb", "9p", "fuse.sshfs", "afs", "ncpfs", "glusterfs", "fuse.glusterfs", "ceph", "lustre")
_MEANING = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it may only be read",
    "SQLITE_CORRUPT": "it is damaged; restore it from a backup, or save what is left with `sqlite3 FILE .recover`",
    "SQLITE_NOTADB": "it is not an SQLite database",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_IOERR": "reading or writing failed",
    "SQLITE_PERM": "access is not permitted",
    "SQLITE_BUSY": "another program has kept it locked",
    "SQLITE_ERROR": "its tables are not those that TaskHarbor made",
}
# The file itself failed, not the call: its connection is opened anew.
_FILE_FAILED = ("SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL")
_LASTING = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_ERROR")
_LASTING_ERRNO = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG}


def unavailable(path: str, error: Exception) -> BackendUnavailable:
    """The error that a caller gets for one of SQLite or of the system. Shows no statement and no value."""
    if isinstance(error, BackendUnavailable):
        return error
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    meaning = next((text for start, text in _MEANING.items() if name.startswith(start)), "")
    if name.startswith("SQLITE_CANTOPEN") and _has_no_descriptors():
        meaning = "too many open files in this process or system; raise the limit (ulimit -n)"
    if isinstance(error, OSError):
        meaning = error.strerror or type(error).__name__
        name = errno.errorcode.get(error.errno or 0, name)
    made = BackendUnavailable(f"{path}: {meaning or 'SQLite failed'} ({name})")
    made.lasting = name.startswith(_LASTING) or (isinstance(error, OSError) and error.errno in _LASTING_ERRNO)
    made.__cause__ = error
    return made


def _has_no_descriptors() -> bool:
    """Whether this process could not open a database now, with its -wal and its -shm file. SQLite does not say why."""
    opened: list[int] = []
    try:
        while len(opened) < 3:
            opened.append(os.open(os.sep, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in USED_UP
    finally:
        for number in opened:
            os.close(number)
    return False


def create(path: str) -> None:
    """Create an empty file that only its owner may read, unless it exists; SQLite gives -wal and -shm the same mode.

    A file that exists is never opened here. POSIX drops all locks of a process on a file as soon as the process closes
    any descriptor of it. SQLite would believe that it still holds its lock, the next process to close the file would
    believe that it is the last one, and would remove the -wal file under this one: acknowledged jobs would be lost.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise file_guard.lasting(f"{path}: its folder {folder} does not exist; create it first")
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _make(path)
    except FileExistsError:
        pass
    except OSError as error:
        raise unavailable(path, error) from error


def _make(path: str) -> None:
    """Create the file, or FileExistsError. Without a descriptor where the system allows it: see `create`."""
    try:
        os.mknod(path, 0o600)
    except PermissionError:  # macOS lets only root do this
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def refuse_links(path: str) -> None:
    """Refuse a file with a second name (a hard link): SQLite finds a -wal file by the name of the database, so that two
    programs with two names would write to one file past each other."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise file_guard.lasting(f"{path}: expected a file, found {what}; name a file, such as sqlite:///jobs.db")
    names = found.st_nlink
    if names > 1:
        raise file_guard.lasting(
            f"{path}: the file has {names} names (hard links), and SQLite keeps its -wal file by name: programs that "
            "use different names destroy each other's work. Remove the others; "
            f"`find DIRECTORY -samefile {path}` finds them."
        )


def check_library() -> None:
    """Refuse a library that lacks what our statements use, before one of them fails with a syntax error."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise file_guard.lasting(
            f"sqlite:// needs the SQLite library {wanted} or later; this Python uses {sqlite3.sqlite_version}. "
            "Upgrade the system's libsqlite3, or use a Python that brings a newer one."
        )


def connect(path: str, synchronous: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """A connection to a file that exists. Transactions are begun and ended by hand."""
    file_guard.check_usable(path)
    file_guard.check_wal_owner(path)
    connection = sqlite3.connect(
        path,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=factory,
    )
    try:
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA temp_store = memory")
        connection.execute("PRAGMA cache_size = -16384")
        connection.execute("PRAGMA wal_autocheckpoint = 16000")  # 64 MB; `Checkpointer` is due before that
        # A -wal file that grew larger is cut when it starts over.
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_existing(path: str) -> sqlite3.Connection:
    """A connection that creates no file, not even an empty one."""
    file_guard.check_usable(path)
    file_guard.check_wal_owner(path)
    uri = f"file:{quote(path)}?mode=rw"  # not ro: one that may only read leaves the -wal file behind that it needs
    return sqlite3.connect(uri, uri=True, timeout=BUSY_MS / 1000, isolation_level=None)


def use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch the file to WAL, which it then stays in. Under the file's lock, or openers get into each other's way."""
    mode = connection.execute("PRAGMA journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise BackendUnavailable(f"{path}: SQLite could not switch it to WAL (it is {mode}); is it on a local disk?")


def begin(connection: sqlite3.Connection, path: str) -> None:
    """Begin a write transaction, and wait for other writers: the application may write to the file without our lock."""
    for last in (*[False] * (round(LOCK_TIMEOUT_S * 1000 / BUSY_MS) - 1), True):
        try:
            connection.execute("BEGIN IMMEDIATE")  # waits for BUSY_MS
            return
        except sqlite3.OperationalError as error:
            if last or not is_busy(error):
                raise unavailable(path, error) from error


def is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def network_mount(path: str, mounts: str = "/proc/mounts") -> str | None:
    """The kind of network file system the file lies on, or None."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    real = os.path.realpath(path)
    best, kind = "", ""
    for row in rows:
        if len(row) > 2:
            _, escaped, kind_here, *_ = row
            point = escaped.encode().decode("unicode_escape", errors="replace")
            if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, kind_here
    return kind if kind.startswith(_NETWORK) else None


class FileConnection:
    """A connection to the file that is opened by the first call, and again when the file was replaced or failed.

    `guard` is held while the connection is used: a fork waits for it and closes the connection, which must not cross a
    fork. Nothing else may be waited for under the guard: the thread that forks may be the one that is waited for.
    """

    def __init__(self, path: str, on_open: Callable[[sqlite3.Connection], None] | None = None) -> None:
        self.path = path
        self.guard = threading.Lock()
        self._on_open = on_open
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    def get(self) -> sqlite3.Connection:
        """The connection; opened now if there is none. BackendUnavailable if the file is gone. Under the guard."""
        file_guard.check_usable(self.path)
        try:
            identity = self._identity_now()
        except OSError as error:
            self.disconnect()
            raise unavailable(self.path, error) from error
        if self._connection is not None and self._identity != identity:
            self.disconnect()
        if self._connection is None:
            self._identity = identity
            self._connection = connect(self.path, "normal")
            try:
                if self._on_open is not None:
                    self._on_open(self._connection)
            except BaseException:
                self.disconnect()  # the next call must not use a file that was refused
                raise
        return self._connection

    def get_if_open(self) -> sqlite3.Connection | None:
        """The connection, if it is open and the file is still the same."""
        try:
            return self._connection if self._identity == self._identity_now() else None
        except OSError:
            return None

    def is_open(self) -> bool:
        return self._connection is not None

    def _identity_now(self) -> tuple[int, int]:
        stat = os.stat(self.path)
        return stat.st_dev, stat.st_ino

    def recover(self, error: BaseException) -> None:
        """After a failure: roll back what is open; close the connection if the file itself failed. Under the guard."""
        connection = self._connection
        if connection is None:
            return
        name = getattr(error, "sqlite_errorname", "") or ""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            name = "SQLITE_IOERR"
        if name.startswith(_FILE_FAILED):
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection, if it is open. Under the guard."""
        connection, self._connection = self._connection, None
        file_guard.close_safely(connection, self.path)


class FailureLog:
    """Logs each failure of the store once until it is over: callers try again and again."""

    def __init__(self) -> None:
        self._last = ""

    def note(self, error: BaseException | None) -> None:
        """A call failed with this error; None: one succeeded."""
        text = str(error) if isinstance(error, BackendUnavailable) else ""
        if text and text != self._last:
            logger.error("%s", text)
        self._last = text
