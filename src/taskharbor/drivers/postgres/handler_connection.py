"""The connection that a handler gets from `ctx.transaction()`: everything works on it except ending its transaction.

The transaction has begun before the handler gets it, so that `connection.transaction()` is a savepoint, and it has its
first snapshot, so that its isolation can no longer be changed. commit(), rollback(), close() and statements that would
end it are refused. If a handler finds another way, the connection notices it, and refuses all further statements.

The worker may end it at any moment: when the job times out, the handler may be in the middle of a statement, in a
thread that cannot be stopped. Then the server is asked to stop that statement and the connection is cut, so that the
server rolls back and frees its locks. Everything that the handler does on it, then and later, raises a
`psycopg.InterfaceError` that says why.

`wait` is overridden, because every statement of psycopg passes through it. Its documentation does not list it, so
pyproject.toml bounds the version.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, NoReturn

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import Composable

from taskharbor.drivers.postgres.connection import STOP_S, can_cancel
from taskharbor.drivers.postgres.deadline import cut
from taskharbor.drivers.postgres.statement import awaited

OURS = (
    "the transaction belongs to the job: it is committed with the job's ack when the handler returns, and rolled back "
    "when it raises. `connection.transaction()` makes a part of it that can be undone alone"
)
_ENDED = "the handler has ended the transaction of its job: nothing more can be read or written through it"
_SUSPICIOUS = re.compile(r"\b(?:commit|end|abort|rollback|prepare)\b", re.IGNORECASE).search
# Comments, quoted texts of all kinds, then what statements are made of.
_PIECES = re.compile(
    r"""--[^\n]*|/\*.*?\*/|e'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"[^"]*"|(\$\w*\$).*?\1|;|\w+|\S""",
    re.IGNORECASE | re.DOTALL,
)


def would_end(text: str) -> bool:
    """Whether one of these statements ends the transaction they run in.

    >>> would_end("insert into orders values ('; commit')"), would_end("select case when true then 1 end")
    (False, False)
    >>> would_end("/* done */ COMMIT"), would_end("select 1; end"), would_end("rollback work to savepoint a")
    (True, True, False)
    """
    if _SUSPICIOUS(text) is None:
        return False
    words: list[str] = []
    for found in _PIECES.finditer(text):
        piece = found.group().lower()
        if piece == ";":
            if _ends(words):
                return True
            words = []
        elif len(words) < 3 and not piece.startswith(("--", "/*")):
            words.append(piece)
    return _ends(words)


def _ends(words: list[str]) -> bool:
    if not words:
        return False
    first, *others = words
    if first == "rollback":
        return "to" not in others
    return first in ("commit", "end", "abort") or (first == "prepare" and others[:1] == ["transaction"])


def _refuse_end(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], query: Any) -> None:
    if isinstance(query, Composable):
        query = query.as_string(connection)
    elif isinstance(query, bytes):
        query = query.decode(errors="replace")
    if isinstance(query, str) and would_end(query):
        raise psycopg.ProgrammingError(OURS)


class _GuardedCursor:
    """Psycopg's own methods, after a look at the statement. They return what psycopg's do: coroutines, if it does."""

    psycopg_class: Any
    connection: Any

    def execute(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _refuse_end(self.connection, query)
        return self.psycopg_class.execute(self, query, *arguments, **named)

    def executemany(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _refuse_end(self.connection, query)
        return self.psycopg_class.executemany(self, query, *arguments, **named)

    def stream(self, query: Any, *arguments: Any, **named: Any) -> Any:
        _refuse_end(self.connection, query)
        return self.psycopg_class.stream(self, query, *arguments, **named)


class SyncHandlerCursor(_GuardedCursor, psycopg.Cursor[Any]):
    """For a handler that is a plain function."""

    psycopg_class = psycopg.Cursor


class AsyncHandlerCursor(_GuardedCursor, psycopg.AsyncCursor[Any]):
    """For a handler that is a coroutine."""

    psycopg_class = psycopg.AsyncCursor


class _GuardedConnection:
    """What the synchronous and the asynchronous connection have in common.

    The worker's own calls (`begin`, `let_go`, `end`) are coroutines. They never suspend on a synchronous connection.
    """

    psycopg_class: Any
    handler_cursor: Any
    is_lent = False  # whether a handler has it, with a transaction that has begun
    over = ""  # why the transaction has ended before its job
    store = ""  # the address of the store that it was made for
    swallowed: psycopg.Error | None = None  # the error that made the server give the transaction up
    pgconn: psycopg.pq.abc.PGconn

    async def begin(self) -> None:
        """Begin the transaction that the handler works in, with our isolation, whatever this server sets."""
        own: Any = self
        own.cursor_factory = self.handler_cursor
        await awaited(own.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED))
        await awaited(own.set_autocommit(False))
        await awaited(own.execute("select 1"))
        self.is_lent = True

    def commit(self) -> Any:
        if self.is_lent:
            self._refuse()
        return self.psycopg_class.commit(self)

    def rollback(self) -> Any:
        if self.is_lent:
            self._refuse()
        return self.psycopg_class.rollback(self)

    def close(self) -> Any:
        if self.is_lent:
            self._refuse()
        return self.psycopg_class.close(self)

    async def let_go(self) -> None:
        """Close it, and so roll back what is not committed."""
        self.is_lent = False
        await awaited(self.close())

    async def end(self, why: str) -> None:
        """Roll back now, from any thread, whatever runs; nothing is done through this connection any more."""
        own: Any = self
        self.over = why
        with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
            if can_cancel() and self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await awaited(own.cancel_safe(timeout=STOP_S))
        with contextlib.suppress(psycopg.Error):  # closed meanwhile
            cut(own)

    def _refuse(self) -> NoReturn:
        raise psycopg.InterfaceError(self.over) if self.over else psycopg.ProgrammingError(OURS)

    def _before(self) -> None:
        if self.over:
            raise psycopg.InterfaceError(self.over)

    def _failed(self, error: psycopg.Error) -> None:
        if self.over and isinstance(error, psycopg.OperationalError):  # which stopped it
            raise psycopg.InterfaceError(self.over) from error
        if self.pgconn.transaction_status == TransactionStatus.INERROR and self.swallowed is None:
            self.swallowed = error

    def _after(self) -> None:
        status = self.pgconn.transaction_status
        if status == TransactionStatus.INTRANS:
            self.swallowed = None  # a savepoint was rolled back
        elif self.is_lent and status == TransactionStatus.IDLE and not self.over:
            self.over = _ENDED

    def give_back(self) -> psycopg.Error | None:
        """The handler has returned. What keeps its transaction from being committed, if anything does."""
        self.is_lent = False
        if self.over:
            return psycopg.InterfaceError(self.over)
        if self.swallowed is not None:
            error = psycopg.errors.InFailedSqlTransaction(
                f"the handler went on after an error that had ended its transaction: "
                f"{type(self.swallowed).__name__}: {self.swallowed}"
            )
            error.__cause__ = self.swallowed
            return error
        return None


class SyncHandlerConnection(_GuardedConnection, psycopg.Connection[Any]):
    """For a handler that is a plain function."""

    psycopg_class = psycopg.Connection
    handler_cursor = SyncHandlerCursor

    def __enter__(self) -> Any:
        self._refuse()  # its end would commit, and close

    def wait(self, *arguments: Any, **named: Any) -> Any:
        """Every statement comes through here."""
        self._before()
        try:
            return super().wait(*arguments, **named)
        except psycopg.Error as error:
            self._failed(error)
            raise
        finally:
            self._after()


class AsyncHandlerConnection(_GuardedConnection, psycopg.AsyncConnection[Any]):
    """The same for a coroutine."""

    psycopg_class = psycopg.AsyncConnection
    handler_cursor = AsyncHandlerCursor

    async def __aenter__(self) -> Any:
        self._refuse()

    async def wait(self, *arguments: Any, **named: Any) -> Any:
        self._before()
        try:
            return await super().wait(*arguments, **named)
        except psycopg.Error as error:
            self._failed(error)
            raise
        finally:
            self._after()
