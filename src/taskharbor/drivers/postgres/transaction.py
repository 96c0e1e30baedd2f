"""Transactions in which a handler's own writes and the ack of its job commit together, or not at all.

If the server refuses a statement or the COMMIT itself, nothing is stored. The result is TransactionFailed: a failure of
the job with the server's text. A connection that is lost before COMMIT was sent is the same, since the server rolls
back. Only if it is lost afterwards, it is unknown what was stored.

Everything works on the connection that a handler gets except ending its transaction. That has begun before, so that
`connection.transaction()` is a savepoint, and it has its first snapshot, so that its isolation can no longer be
changed. commit(), rollback(), close() and statements that would end it are refused. If a handler finds another way, the
connection notices it, and refuses all further statements.

The worker may end it at any moment: when the job times out, the handler may be in the middle of a statement, in a
thread that cannot be stopped. Then the server is asked to stop that statement and the connection is cut, so that the
server rolls back and frees its locks. Everything that the handler does on it, then and later, raises a
`psycopg.InterfaceError` that says why.

`wait` is overridden, because every statement of psycopg passes through it. Its documentation does not list it, so
pyproject.toml bounds the version.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.sql import Composable

from taskharbor.drivers.connections import asking, at_once, awaited, run
from taskharbor.drivers.postgres.connection import STOP_S, can_cancel
from taskharbor.drivers.postgres.deadline import Deadline, ThreadDeadline, cut
from taskharbor.drivers.postgres.handler_pool import HandlerPool, Place
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import connect_arguments, limit_of
from taskharbor.drivers.postgres.statement import drive
from taskharbor.drivers.postgres.steps import last_of
from taskharbor.drivers.postgres.tries import unavailable
from taskharbor.drivers.transactions import aborted
from taskharbor.model.errors import TaskHarborError, TransactionFailed
from taskharbor.model.lease import Lease
from taskharbor.model.memo import SaveStep
from taskharbor.model.outcome import Ack

_LOST = ("08", "57P", "40003")  # error states in which the result of a commit is unknown
OURS = (
    "the transaction belongs to the job: it is committed with the job's ack when the handler returns, and rolled back "
    "when it raises. `connection.transaction()` makes a part of it that can be undone alone"
)
_AFTERWARDS = "the job of this transaction has ended: nothing more can be read or written through it"
# What a handler may have changed of its session. Not DISCARD ALL, which would throw away the plans of our functions.
_RESET = (
    "close all; set session authorization default; reset all; deallocate all; unlisten *; "
    "select pg_advisory_unlock_all(); discard temp; discard sequences"
)
_ENDED = "the handler has ended the transaction of its job: nothing more can be read or written through it"
_SUSPICIOUS = re.compile(r"\b(?:commit|end|abort|rollback|prepare)\b", re.IGNORECASE).search
# Comments, quoted texts of all kinds, then what statements are made of.
_PIECES = re.compile(
    r"""--[^\n]*|/\*|\*/|e'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"[^"]*"|(\$\w*\$).*?\1|;|\w+|\S""",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT_MARKS = re.compile(r"/\*|\*/")  # inside of a comment, and comments nest


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
    place, depth = 0, 0  # of comments: they nest
    while (found := (_COMMENT_MARKS if depth else _PIECES).search(text, place)) is not None:
        piece, place = found.group().lower(), found.end()
        if piece in ("/*", "*/"):
            depth = max(depth + (1 if piece == "/*" else -1), 0)
        elif piece == ";":
            if _ends(words):
                return True
            words = []
        elif len(words) < 3 and not piece.startswith("--"):
            words.append(piece)
    return _ends(words)


def _ends(words: list[str]) -> bool:
    if not words:
        return False
    first, *others = words
    if first == "rollback":
        return "to" not in others
    return first in ("commit", "end", "abort") or (first == "prepare" and others[:1] == ["transaction"])


class _GuardedCursor:
    """Psycopg's own methods, after a look at the statement. They return what psycopg's do: coroutines, if it does."""

    psycopg_class: Any
    connection: Any

    def execute(self, query: Any, *arguments: Any, **named: Any) -> Any:
        return self._checked("execute", query, *arguments, **named)

    def executemany(self, query: Any, *arguments: Any, **named: Any) -> Any:
        return self._checked("executemany", query, *arguments, **named)

    def stream(self, query: Any, *arguments: Any, **named: Any) -> Any:
        return self._checked("stream", query, *arguments, **named)

    def _checked(self, method: str, query: Any, *arguments: Any, **named: Any) -> Any:
        text = query.as_string(self.connection) if isinstance(query, Composable) else query
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        if isinstance(text, str) and would_end(text):
            raise psycopg.ProgrammingError(OURS)
        return getattr(self.psycopg_class, method)(self, query, *arguments, **named)


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
    has_session = True  # whether the session is its own; a pooler lends one that other programs use as well
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
        cursor = await awaited(own.execute("select pg_backend_pid()"))
        self.has_session = await awaited(cursor.fetchone()) == (self.pgconn.backend_pid,)
        self.is_lent = True

    def commit(self) -> Any:
        return self._ended_by("commit")

    def rollback(self) -> Any:
        return self._ended_by("rollback")

    def close(self) -> Any:
        return self._ended_by("close")

    def _ended_by(self, method: str) -> Any:
        if self.is_lent:
            self._refuse()
        return getattr(self.psycopg_class, method)(self)

    async def let_go(self) -> None:
        """Close it, and so roll back what is not committed."""
        self.is_lent = False
        await awaited(self.close())

    async def retire(self) -> psycopg.pq.abc.PGconn | None:
        """End the transaction, and return libpq's connection for another handler, as it was at its start; None if that
        is not possible, and it is closed, or if a pooler lends the session, which is not ours to change. What is done
        through this object from now on is refused."""
        own: Any = self
        self.is_lent = False
        try:
            if self.over or self.pgconn.transaction_status not in _BETWEEN_STATEMENTS:
                return None
            await awaited(self.psycopg_class.rollback(self))
            if not self.has_session:
                return None
            await awaited(own.set_autocommit(True))
            async with _resetting(own) as cursor:
                await awaited(cursor.execute(_RESET))
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                return None
            kept, self.pgconn = self.pgconn, _closed_connection()
            self.over = _AFTERWARDS
            return kept
        except psycopg.Error:
            return None
        finally:
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


_BETWEEN_STATEMENTS = (TransactionStatus.IDLE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


@contextlib.asynccontextmanager
async def _resetting(connection: Any) -> AsyncIterator[Any]:
    """A cursor of psycopg's own, whatever the handler has set."""
    is_sync = isinstance(connection, psycopg.Connection)
    cursor: Any = (psycopg.Cursor if is_sync else psycopg.AsyncCursor)(connection)
    try:
        yield cursor
    finally:
        await awaited(cursor.close())


@functools.cache
def _closed_connection() -> psycopg.pq.abc.PGconn:
    made = psycopg.pq.PGconn.connect_start(b"host=''")
    made.finish()
    return made


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


HandlerConnection: TypeAlias = SyncHandlerConnection | AsyncHandlerConnection


# The transaction


class PostgresTransaction:
    """One transaction, on a connection that no other uses meanwhile.

    `synchronous`: for a handler that is a plain function. Then no method suspends, and any thread may abort it.
    """

    def __init__(
        self, options: PostgresOptions, lease: Lease, connections: HandlerPool, *, synchronous: bool = False
    ) -> None:
        self._options = options
        self._lease = lease
        self._connections = connections
        self._place: Place | None = None
        self._deadline = ThreadDeadline if synchronous else Deadline
        self._synchronous = synchronous
        self._connection: HandlerConnection | None = None
        self._changing = threading.Lock()  # guards `_connection` and `_over`
        self._over = ""  # why it was aborted

    async def __aenter__(self) -> Any:
        if self._connection is None and not self._over:
            await self._wait_for_place()
            if not self._over:
                await self._begin()
        if self._over or self._connection is None:
            await self.rollback()
            raise psycopg.InterfaceError(self._over)
        return self._connection

    async def _wait_for_place(self) -> None:
        """Wait for as long as the job may run: whatever ends it, ends this."""
        with self._changing:
            place = self._place = self._connections.enter()
        try:
            if self._synchronous:
                place.result()
            elif not place.done():
                await asyncio.wrap_future(place)
        except BaseException as error:
            self._leave()
            if not self._over or not isinstance(error, CancelledError | asyncio.CancelledError):
                raise
            task = None if self._synchronous else asyncio.current_task()
            if task is not None and task.cancelling():  # not only the wait was cancelled
                raise

    def _leave(self) -> None:
        with self._changing:
            place, self._place = self._place, None
        if place is not None:
            self._connections.leave(place)

    async def _begin(self) -> None:
        try:
            connection = await self._begun()
        except (psycopg.Error, OSError) as error:
            self._leave()
            raise unavailable(self._options, error) from error
        except BaseException:
            self._leave()
            raise
        with self._changing:
            self._connection = connection

    async def _begun(self) -> HandlerConnection:
        kind: Any = SyncHandlerConnection if self._synchronous else AsyncHandlerConnection
        while (kept := self._connections.take()) is not None:
            with contextlib.suppress(psycopg.Error):  # the server has closed it meanwhile
                return await self._begun_on(kind(kept))
        return await self._begun_on(await awaited(kind.connect(**connect_arguments(self._options))))

    async def _begun_on(self, connection: HandlerConnection) -> HandlerConnection:
        try:
            with self._deadline(self._options.connect_timeout, connection):
                await connection.begin()
        except BaseException:
            await connection.let_go()
            raise
        connection.store = self._options.address
        return connection

    async def _retire(self, connection: HandlerConnection) -> None:
        try:
            with self._deadline(self._options.connect_timeout, connection):
                kept = await connection.retire()
            if kept is not None:
                self._connections.keep(kept)
        finally:
            self._leave()

    async def __aexit__(self, *raised: object) -> None:
        """The transaction stays open: the worker ends it."""

    async def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        connection, self._connection = self._connection, None
        if connection is None:
            raise RuntimeError("the transaction has ended, or was never begun")
        sent = False  # the COMMIT: before it, a lost connection has rolled back
        try:
            if (problem := connection.give_back()) is not None:
                return _failed(self._lease, problem)
            with self._deadline(limit_of(self._options), connection):
                ask = asking(connection) if self._synchronous else partial(run, connection)
                refused = await drive(last_of(self._options, self._lease, ack, now), ask)
                if refused is None:
                    sent = True
                    await awaited(connection.commit())
                return refused  # and retiring it rolls back
        except psycopg.Error as error:
            if not sent or _is_undone(error):
                return _failed(self._lease, error)
            raise unavailable(self._options, error) from error
        finally:
            await self._retire(connection)

    async def rollback(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._retire(connection)
        self._leave()

    async def abort(self, why: str) -> None:
        """End it at once, whatever the handler is doing; its later statements are refused."""
        with self._changing:
            self._over = self._over or aborted(self._lease, why)
            connection, place = self._connection, self._place
        if connection is not None:
            await connection.end(self._over)
        elif place is not None:
            place.cancel()  # if it still waits


class PostgresTransactionSync:
    """The same for a handler that is a plain function, on its thread; `abort` from any."""

    def __init__(self, options: PostgresOptions, lease: Lease, connections: HandlerPool) -> None:
        self._inner = PostgresTransaction(options, lease, connections, synchronous=True)

    def __enter__(self) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = at_once(self._inner.__aenter__())
        return connection

    def __exit__(self, *raised: object) -> None:
        """The transaction stays open: the worker ends it."""

    def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        return at_once(self._inner.commit(ack, now))

    def rollback(self) -> None:
        at_once(self._inner.rollback())

    def abort(self, why: str) -> None:
        at_once(self._inner.abort(why))


def _is_undone(error: psycopg.Error) -> bool:
    """Whether an error means that the transaction was rolled back, not that the server is going away."""
    return error.sqlstate is not None and not error.sqlstate.startswith(_LOST)


def _failed(lease: Lease, error: psycopg.Error) -> TransactionFailed:
    failed = TransactionFailed(f"the transaction of job {lease.job_id} was not committed")
    failed.__cause__ = error
    return failed
