"""The connection that a handler gets from `ctx.transaction()`. Only the worker ends its transaction, at any moment.

When its job times out, a handler may be in the middle of a statement, in a thread that cannot be ended. So every
statement runs under a lock, and checks from time to time whether to stop; `end` asks it to, waits for that lock, and
rolls back. Everything that the handler does afterwards raises an `sqlite3.InterfaceError` with the reason. The
connection itself stays open until the handler has ended: closing it under a statement would crash the process.

(`Connection.interrupt` does not serve: called between two steps of a statement it is remembered, and stops the
rollback.)
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_END = object()
_OURS = (
    "the transaction belongs to the job: it is committed with the job's ack when the handler returns, and rolled back "
    "when it raises. `with connection:` makes a part of it that can be undone alone."
)
_GONE = "SQLite has rolled back the whole transaction: nothing more can be written through it"
STEPS_BETWEEN_CHECKS = 10_000  # of SQLite's virtual machine: some 0.1 ms


class HandlerConnection(sqlite3.Connection):
    """`with connection:` is a savepoint. No statement of the handler ends the transaction."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.using = threading.RLock()  # held while a statement runs
        self.over = ""  # why the transaction has ended before its job
        self._lent = False
        self._refused = False  # a statement that begins or ends a transaction
        self._savepoints = 0
        self.set_progress_handler(None, STEPS_BETWEEN_CHECKS)

    def lend(self) -> None:
        """A transaction was begun. From now on no statement begins or ends one."""
        self.set_authorizer(None)
        self._lent = True

    def set_progress_handler(self, progress_handler: Callable[[], Any] | None, n: int) -> None:
        """The handler's own function is called as well."""
        super().set_progress_handler(
            lambda: bool(self.over) or (progress_handler is not None and progress_handler()), n
        )

    def set_authorizer(self, authorizer_callback: Callable[..., int] | None) -> None:
        """The handler's own function is called as well."""

        def allowed(action: int, *about: Any) -> int:
            if action == sqlite3.SQLITE_TRANSACTION:
                self._refused = True
                return sqlite3.SQLITE_DENY
            return sqlite3.SQLITE_OK if authorizer_callback is None else authorizer_callback(action, *about)

        super().set_authorizer(allowed)

    def commit(self) -> None:
        self.refuse_when_over()
        raise sqlite3.ProgrammingError(_OURS)

    def rollback(self) -> None:
        self.refuse_when_over()
        raise sqlite3.ProgrammingError(_OURS)

    def close(self) -> None:
        if self._lent:
            self.refuse_when_over()
            raise sqlite3.ProgrammingError(f"it is not closed by its handler: {_OURS}")
        super().close()

    def take_back(self) -> None:
        """Its handler has ended: it may be closed."""
        self._lent = False

    def __enter__(self) -> HandlerConnection:
        self._savepoints += 1
        self.execute(f"SAVEPOINT taskharbor_inner_{self._savepoints}")
        return self

    def __exit__(self, kind: Any, *raised: object) -> Any:
        name = f"taskharbor_inner_{self._savepoints}"
        self._savepoints -= 1
        if not self.over:
            if kind is not None:
                self.execute(f"ROLLBACK TO {name}")
            self.execute(f"RELEASE {name}")
        return False

    def cursor(self, factory: Any = None) -> Any:
        self.refuse_when_over()
        return super().cursor(HandlerCursor if factory is None else factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        self.refuse_when_over()
        raise sqlite3.ProgrammingError(f"executescript() commits first: execute its statements one by one. {_OURS}")

    def refuse_when_over(self) -> None:
        if self.over:
            raise sqlite3.InterfaceError(self.over)

    def refuse_when_gone(self) -> None:
        if not self.in_transaction:  # a cursor of another class was used, which does not notice
            raise sqlite3.InterfaceError(_GONE)

    def guarded(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a statement, unless the transaction is over."""
        with self.using:
            self.refuse_when_over()
            self._refused = False
            try:
                return call(*args, **options)
            except sqlite3.Error as error:
                if self.over:  # which stopped it
                    raise sqlite3.InterfaceError(self.over) from error
                if self._refused:
                    raise sqlite3.ProgrammingError(_OURS) from error
                if self._lent and not self.in_transaction:  # whatever is written now would be committed at once
                    self.over = f"{_GONE} ({type(error).__name__}: {error})"
                raise

    def unguarded(self, rows: Iterable[Any]) -> Iterator[Any]:
        """The rows of an executemany. They may take as long as they like: no statement runs meanwhile."""
        iterator = iter(rows)
        while True:
            self.using.release()
            try:
                row = next(iterator, _END)
            finally:
                self.using.acquire()
            self.refuse_when_over()
            if row is _END:
                return
            yield row

    def end(self, why: str) -> None:
        """Roll back now, from any thread, whatever runs; from now on the connection refuses everything."""
        self.over = why
        with self.using:
            undo(self)
            super().set_authorizer(_refuse)  # cursors of another class, and statements that were prepared before


class HandlerCursor(sqlite3.Cursor):
    """A cursor of such a connection: each step of a statement under its lock."""

    def execute(self, sql: str, parameters: Any = (), /) -> HandlerCursor:
        return _owner(self).guarded(super().execute, sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> HandlerCursor:
        rows = parameters if isinstance(parameters, list | tuple) else _owner(self).unguarded(parameters)
        return _owner(self).guarded(super().executemany, sql, rows)

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        return self.connection.executescript(sql_script)

    def fetchone(self) -> Any:
        return _owner(self).guarded(super().fetchone)

    def fetchmany(self, size: int | None = None) -> list[Any]:
        step = super().fetchmany
        size = self.arraysize if size is None else size
        return _owner(self).guarded(step, size)

    def fetchall(self) -> list[Any]:
        return _owner(self).guarded(super().fetchall)

    def __next__(self) -> Any:
        return _owner(self).guarded(super().__next__)


def _owner(cursor: HandlerCursor) -> HandlerConnection:
    connection = cursor.connection
    assert isinstance(connection, HandlerConnection)
    return connection


def undo(connection: sqlite3.Connection) -> None:
    """Roll back what is open. Closing alone would not: a cursor that is still referenced keeps its statement, and with
    it the transaction and the write lock."""
    sqlite3.Connection.set_progress_handler(connection, None, 0)
    sqlite3.Connection.set_authorizer(connection, None)
    if connection.in_transaction:
        sqlite3.Connection.rollback(connection)


def _refuse(*_: object) -> int:
    return sqlite3.SQLITE_DENY
