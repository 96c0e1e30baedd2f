"""A transaction that a handler's writes share with its job's ack: both are committed, or neither.

    waiting for its turn ──► open ──commit──► over          abort: from any state, by any thread, for good
                              └──rollback, abort──► over

It holds the file's write lock from its first moment to its last: all other writers wait. So a warning is logged when it
lasts longer than a second, and the worker aborts it when the job is settled without its handler. The handler can
neither commit nor roll back; only the worker ends it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from datetime import datetime
from functools import partial

from taskharbor.drivers.sqlite.connection import begin, unavailable
from taskharbor.drivers.sqlite.damage import decode_any
from taskharbor.drivers.sqlite.database import Database
from taskharbor.drivers.sqlite.handler_connection import HandlerConnection, undo
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.settle import settle
from taskharbor.drivers.sqlite.turns import Turn
from taskharbor.drivers.sqlite.wal import WalFile
from taskharbor.drivers.transactions import aborted
from taskharbor.model.errors import TaskHarborError, TransactionFailed
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack

logger = logging.getLogger("taskharbor.drivers.sqlite")

LONG_TRANSACTION_S = 1.0  # with the write lock: then a warning is logged


class SqliteTransactionSync:
    """`with transaction as connection`, then `commit` or `rollback`, one after the other; `abort` at any moment."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._lease = lease
        self._connection: HandlerConnection | None = None
        self._wal: WalFile | None = None  # that its writes go to
        self._changing = threading.Lock()  # of what follows
        self._turn: Turn | None = None
        self._holds = False  # the write lock, and the turn that goes with it
        self._over = ""  # why it was aborted
        self._alarm: threading.Timer | None = None

    def __enter__(self) -> sqlite3.Connection:
        if self._connection is None:
            woken = threading.Event()
            with self._changing:
                self._refuse_when_over()
                turn = self._turn = self._database.writer.turns.ask(woken.set)
            try:
                self._database.writer.wait_for(turn, woken)
            except BaseException:
                self._refuse_when_over()
                raise
            return self.begin()
        self._connection.refuse_when_over()
        return self._connection

    def __exit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    def begin(self) -> HandlerConnection:
        """In this process's turn: open the file and take the write lock."""
        path = self._database.options.path
        self._database.writer.take_lock()
        try:
            self._refuse_when_over()
            connection = self._database.lend_connection()
            try:
                begin(connection, path)
                self._wal = WalFile(path)
                connection.lend()
                with self._changing:
                    self._refuse_when_over()
                    self._connection, self._holds = connection, True
            except BaseException:
                self._database.take_back(connection)  # closed, it is rolled back: no statement of it is left
                raise
        except BaseException as error:
            self._database.writer.end_turn()
            if isinstance(error, sqlite3.Error | OSError) and not self._over:
                raise unavailable(path, error) from error
            raise
        self._alarm = threading.Timer(LONG_TRANSACTION_S, self._warn)
        self._alarm.daemon = True
        self._alarm.start()
        return connection

    def _refuse_when_over(self) -> None:
        if self._over:
            raise sqlite3.InterfaceError(self._over)

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the ack and commit both. A refusal rolls both back and is returned."""
        connection = self._connection
        if connection is None:
            raise RuntimeError("the transaction has not begun, or has ended")
        try:
            with connection.using:
                connection.refuse_when_over()
                connection.refuse_when_gone()
                sqlite3.Connection.set_authorizer(connection, None)
                connection.row_factory, connection.text_factory = None, decode_any
                session = WriteSession(connection)
                refused = settle(session, [ack], now, self._database.options.max_payload)[0]
                if refused is None:
                    session.flush()
                    connection.execute("COMMIT")
                    if self._wal is not None:
                        self._wal.refuse_when_gone()
        except (sqlite3.IntegrityError, sqlite3.InterfaceError) as error:  # a deferred constraint; it is over
            failed = TransactionFailed(f"the transaction of job {self._lease.job_id} was not committed")
            failed.__cause__ = error
            return failed
        except sqlite3.Error as error:
            raise unavailable(self._database.options.path, error) from error
        finally:
            self.rollback()
        if refused is None and session.arrivals:
            self._database.writer.lock.wake_others()
            self._database.waits.wake(session.arrivals)
        return refused

    def rollback(self) -> None:
        """Undo what is not committed, give the lock back, and close the connection: its handler has ended."""
        with self._changing:
            connection, self._connection = self._connection, None
        if connection is None or self._database.is_foreign():  # after a fork it is the parent's
            return
        with connection.using:
            try:
                undo(connection)
            except sqlite3.Error:
                pass  # the handler closed it, or the file is gone: nothing is left to undo
            finally:
                self._end_turn()
                self._database.take_back(connection)

    def abort(self, why: str) -> None:
        """End it at once, from any thread, whatever the handler is doing; what that does later is refused.

        Returns when the lock is given back. Only a statement that runs Python code of the handler's (a function made
        with create_function) is waited for.
        """
        reason = aborted(self._lease, why)
        with self._changing:
            self._over = self._over or reason
            if self._turn is not None and self._database.writer.turns.give_up(self._turn):
                return  # it still waited
            connection = self._connection
        if connection is not None:
            try:
                connection.end(reason)
            except sqlite3.Error:
                pass  # as in rollback
            finally:
                self._end_turn()

    def _end_turn(self) -> None:
        with self._changing:
            holds, self._holds = self._holds, False
        if holds:
            if self._alarm is not None:
                self._alarm.cancel()
            self._database.writer.end_turn()

    def _warn(self) -> None:
        logger.warning(
            "job %s has held the write lock of %s for %.0f s in its transaction: no one else can enqueue, reserve or "
            "settle. Do slow work before the transaction begins.",
            self._lease.job_id,
            self._database.options.path,
            LONG_TRANSACTION_S,
        )


class SqliteTransaction:
    """The same for a coroutine: it waits for its turn on its loop, and for the rest on the background thread."""

    def __init__(self, database: Database, lease: Lease) -> None:
        self._database = database
        self._inner = SqliteTransactionSync(database, lease)

    async def __aenter__(self) -> sqlite3.Connection:
        inner, background = self._inner, self._database.background
        if inner._connection is not None:
            return inner.__enter__()
        await self._database.writer.wait_for_own()
        try:
            return await background.run(inner.begin)
        except BaseException:
            background.put(inner.rollback)  # it was cancelled, and may be open by then
            raise

    async def __aexit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        return await self._database.background.run(partial(self._inner.commit, ack, now))

    async def rollback(self) -> None:
        await self._database.background.run(self._inner.rollback)

    async def abort(self, why: str) -> None:
        await self._database.background.run(partial(self._inner.abort, why))
