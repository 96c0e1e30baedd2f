"""The connection that a handler gets from `ctx.transaction()`. Only core ends its transaction, at any moment.

A handler may be in the middle of a statement, in a thread that nobody can end, when its job times out. So every
statement is run under a lock, and looks from time to time whether it is to stop; `end` says so, waits for that lock,
and rolls back. Whatever the handler does afterwards is an `sqlite3.InterfaceError` that says why. The connection itself
stays open until the handler has ended: closing it under a statement would crash the process.

(`Connection.interrupt` would not do: said between two steps of a statement it is remembered, and stops the rollback.)
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_END = object()
STEPS = 10_000  # of SQLite's machine, some 0.1 ms, from one look to the next


class HandlerConnection(sqlite3.Connection):
    """`with connection:`, commit and rollback do not end the transaction."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.using = threading.RLock()  # held while a statement runs
        self.over = ""  # why the transaction was ended from outside
        self.set_progress_handler(None, STEPS)

    def set_progress_handler(self, progress_handler: Callable[[], Any] | None, n: int) -> None:
        """The handler's own function is asked as well."""
        super().set_progress_handler(
            lambda: bool(self.over) or (progress_handler is not None and progress_handler()), n
        )

    def commit(self) -> None:
        """Core commits, together with the job's ack."""
        self.refuse_when_over()

    def rollback(self) -> None:
        raise RuntimeError("the transaction belongs to the job: raise an exception to roll it back")

    def __enter__(self) -> HandlerConnection:
        return self

    def __exit__(self, *raised: object) -> Any:
        return False

    def cursor(self, factory: Any = None) -> Any:
        self.refuse_when_over()
        return super().cursor(HandlerCursor if factory is None else factory)

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> Any:
        return self.cursor().executemany(sql, parameters)

    def executescript(self, sql_script: str, /) -> Any:
        return self.cursor().executescript(sql_script)

    def refuse_when_over(self) -> None:
        if self.over:
            raise sqlite3.InterfaceError(self.over)

    def guarded(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a statement, unless the transaction is over."""
        with self.using:
            self.refuse_when_over()
            try:
                return call(*args, **options)
            except sqlite3.OperationalError as error:
                if self.over:  # which stopped it
                    raise sqlite3.InterfaceError(self.over) from error
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
        """Roll back now, from any thread, whatever runs; nothing is done through this connection any more."""
        self.over = why
        with self.using:
            undo(self)
            self.set_authorizer(_refuse)  # cursors of another class, and statements that were prepared before


class HandlerCursor(sqlite3.Cursor):
    """A cursor of such a connection: each step of a statement under its lock."""

    def execute(self, sql: str, parameters: Any = (), /) -> HandlerCursor:
        return self.connection.guarded(super().execute, sql, parameters)  # type: ignore[attr-defined,no-any-return]

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> HandlerCursor:
        rows = parameters if isinstance(parameters, list | tuple) else self.connection.unguarded(parameters)  # type: ignore[attr-defined]
        return self.connection.guarded(super().executemany, sql, rows)  # type: ignore[attr-defined,no-any-return]

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        return self.connection.guarded(super().executescript, sql_script)  # type: ignore[attr-defined,no-any-return]

    def fetchone(self) -> Any:
        return self.connection.guarded(super().fetchone)  # type: ignore[attr-defined]

    def fetchmany(self, size: int | None = None) -> list[Any]:
        step = super().fetchmany
        size = self.arraysize if size is None else size
        return self.connection.guarded(step, size)  # type: ignore[attr-defined,no-any-return]

    def fetchall(self) -> list[Any]:
        return self.connection.guarded(super().fetchall)  # type: ignore[attr-defined,no-any-return]

    def __next__(self) -> Any:
        return self.connection.guarded(super().__next__)  # type: ignore[attr-defined]


def undo(connection: sqlite3.Connection) -> None:
    """Roll back what is open. Closing alone would not: a cursor that somebody keeps holds its statement, and that the
    transaction, and the write lock with it."""
    sqlite3.Connection.set_progress_handler(connection, None, 0)
    connection.set_authorizer(None)
    if connection.in_transaction:
        sqlite3.Connection.rollback(connection)


def restrict(connection: sqlite3.Connection) -> None:
    """From now on no statement begins or ends a transaction."""
    connection.set_authorizer(_keep_open)


def _keep_open(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def _refuse(*_: object) -> int:
    return sqlite3.SQLITE_DENY
