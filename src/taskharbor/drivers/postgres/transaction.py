"""Transactions in which a handler's own writes and the ack of its job commit together, or not at all.

If the server refuses a statement or the COMMIT itself, nothing is stored. The result is TransactionFailed: a failure of
the job with the server's text. A connection that is lost before COMMIT was sent is the same, since the server rolls
back. Only if it is lost afterwards, it is unknown what was stored.
"""

from __future__ import annotations

import threading
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.connections import run
from taskharbor.drivers.postgres.deadline import Deadline, ThreadDeadline
from taskharbor.drivers.postgres.options import PostgresOptions
from taskharbor.drivers.postgres.pool import connect_arguments, limit_of
from taskharbor.drivers.postgres.settle import is_plain, settle_alone
from taskharbor.drivers.postgres.spawn import spawn_alone
from taskharbor.drivers.postgres.statement import Program, Statement, asking, at_once, awaited, drive
from taskharbor.drivers.postgres.tries import unavailable
from taskharbor.drivers.transactions import aborted
from taskharbor.model.errors import JobNotFound, TaskHarborError, TransactionFailed
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack

if TYPE_CHECKING:
    import psycopg

    from taskharbor.drivers.postgres.handler_connection import AsyncHandlerConnection, SyncHandlerConnection


_LOST = ("08", "57P", "40003")  # error states in which the result of a commit is unknown


def _settled(options: PostgresOptions, lease: Lease, ack: Ack, now: datetime) -> Program[TaskHarborError | None]:
    if ack.lease.job_id != lease.job_id:
        return JobNotFound(f"this transaction belongs to job {lease.job_id}, not to {ack.lease.job_id}")
    # The handler may have set time limits for its own statements.
    limit = str(round(options.statement_timeout * 1000))
    yield Statement("select set_config('statement_timeout', ?, true), set_config('lock_timeout', '0', true)", (limit,))
    if is_plain(ack):
        return (yield from settle_alone(options.schema, ack, now))
    return (yield from spawn_alone(options.schema, ack, now, options.max_payload))


class PostgresTransaction:
    """One transaction, on a psycopg connection of its own.

    `synchronous`: for a handler that is a plain function. Then no method suspends, and any thread may abort it.
    """

    def __init__(self, options: PostgresOptions, lease: Lease, *, synchronous: bool = False) -> None:
        self._options = options
        self._lease = lease
        self._deadline = ThreadDeadline if synchronous else Deadline
        self._synchronous = synchronous
        self._connection: SyncHandlerConnection | AsyncHandlerConnection | None = None
        self._changing = threading.Lock()  # guards `_connection` and `_over`
        self._over = ""  # why it was aborted

    async def __aenter__(self) -> Any:
        import psycopg

        if self._connection is None and not self._over:
            try:
                connection = await self._begun()
            except (psycopg.Error, OSError) as error:
                raise unavailable(self._options, error) from error
            with self._changing:
                self._connection = connection
        if self._over or self._connection is None:
            await self.rollback()
            raise psycopg.InterfaceError(self._over)
        return self._connection

    async def _begun(self) -> SyncHandlerConnection | AsyncHandlerConnection:
        from taskharbor.drivers.postgres.handler_connection import AsyncHandlerConnection, SyncHandlerConnection

        kind: Any = SyncHandlerConnection if self._synchronous else AsyncHandlerConnection
        connection: SyncHandlerConnection | AsyncHandlerConnection
        connection = await awaited(kind.connect(**connect_arguments(self._options)))
        try:
            with self._deadline(self._options.connect_timeout, connection):
                await connection.begin()
        except BaseException:
            await connection.let_go()
            raise
        connection.store = self._options.address
        return connection

    async def __aexit__(self, *raised: object) -> None:
        """The transaction stays open: the worker ends it."""

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        import psycopg

        connection, self._connection = self._connection, None
        if connection is None:
            raise RuntimeError("the transaction has ended, or was never begun")
        sent = False  # the COMMIT: before it, a lost connection has rolled back
        try:
            if (problem := connection.give_back()) is not None:
                return _failed(self._lease, problem)
            with self._deadline(limit_of(self._options), connection):
                ask = asking(connection) if self._synchronous else partial(run, connection)
                refused = await drive(_settled(self._options, self._lease, ack, now), ask)
                if refused is None:
                    sent = True
                    await awaited(connection.commit())
                return refused  # and closing it rolls back
        except psycopg.Error as error:
            if not sent or _is_undone(error):
                return _failed(self._lease, error)
            raise unavailable(self._options, error) from error
        finally:
            await connection.let_go()

    async def rollback(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.let_go()

    async def abort(self, why: str) -> None:
        """End it at once, whatever the handler is doing; its later statements are refused."""
        with self._changing:
            self._over = self._over or aborted(self._lease, why)
            connection = self._connection
        if connection is not None:
            await connection.end(self._over)


class PostgresTransactionSync:
    """The same for a handler that is a plain function, on its thread; `abort` from any."""

    def __init__(self, options: PostgresOptions, lease: Lease) -> None:
        self._inner = PostgresTransaction(options, lease, synchronous=True)

    def __enter__(self) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = at_once(self._inner.__aenter__())
        return connection

    def __exit__(self, *raised: object) -> None:
        """The transaction stays open: the worker ends it."""

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
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
