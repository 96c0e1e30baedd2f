"""A transaction that a handler's writes share with its job's ack: both are committed, or neither.

    waiting for its turn ──► open ──commit──► over          abort: from any state, by any thread, for good
                              └──rollback, abort──► over

It holds the file's write lock from its first moment to its last: all other writers wait. So a warning is logged when it
lasts longer than a second, and the worker aborts it when the job is settled without its handler. The handler can
neither commit nor roll back; only the worker ends it.

When its job times out, a handler may be in the middle of a statement, in a thread that cannot be ended. So every
statement runs under a lock of its connection, and checks from time to time whether to stop; `HandlerConnection.end`
asks it to, waits for that lock, and rolls back. Everything that the handler does afterwards raises an
`sqlite3.InterfaceError` with the reason. The connection itself stays open until the handler has ended: closing it under
a statement would crash the process. (`Connection.interrupt` does not serve: called between two steps of a statement it
is remembered, and stops the rollback.)
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from taskharbor.drivers.sqlite.connection import LOCK_TIMEOUT_S, begin, unavailable
from taskharbor.drivers.sqlite.damage import decode_any
from taskharbor.drivers.sqlite.own_call import OWN_WRITE
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.settle import settle
from taskharbor.drivers.sqlite.steps import save
from taskharbor.drivers.sqlite.store_clock import Reading, step_since
from taskharbor.drivers.sqlite.turns import Turn
from taskharbor.drivers.sqlite.wal import WalFile
from taskharbor.drivers.transactions import aborted
from taskharbor.model.errors import DriverError, TaskHarborError, TransactionFailed
from taskharbor.model.lease import Lease
from taskharbor.model.memo import SaveStep
from taskharbor.model.outcome import Ack

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.database import Database

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("taskharbor.drivers.sqlite")

LONG_TRANSACTION_S = 1.0  # with the write lock: then a warning is logged
STEPS_BETWEEN_CHECKS = 10_000  # of SQLite's virtual machine: some 0.1 ms
_END = object()
_OURS = (
    "the transaction belongs to the job: it is committed with the job's ack when the handler returns, and rolled back "
    "when it raises. `with connection:` makes a part of it that can be undone alone."
)
_GONE = "SQLite has rolled back the whole transaction: nothing more can be written through it"


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


class SqliteTransactionSync:
    """`with transaction as connection`, then `commit` or `rollback`, one after the other; `abort` at any moment."""

    def __init__(self, database: Database, lease: Lease, reading: Reading) -> None:
        self._database = database
        self._lease = lease
        self._reading = reading
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
                self._database.writer.turns.wait(turn, woken, LOCK_TIMEOUT_S)
            except BaseException:
                self._refuse_when_over()
                raise
            connection = self.begin()
            OWN_WRITE.set(self)
            return connection
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
            self._database.writer.make_room()
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
        with suppress(RuntimeError):  # the system has no thread for a warning
            self._alarm.start()
        return connection

    @property
    def writes_to(self) -> str | None:
        """The file whose write lock it holds."""
        return self._database.options.path if self._holds else None

    def _refuse_when_over(self) -> None:
        if self._over:
            raise sqlite3.InterfaceError(self._over)

    def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
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
                refused = self._apply(session, ack, now)
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

    def _apply(self, session: WriteSession, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        """Settle the job, or store a step of it; returns why that was refused."""
        stepped = self._reading.stepped_at(now)
        if not isinstance(ack, SaveStep):
            [refused] = settle(session, [ack], now, self._database.options.max_payload, stepped)
            return refused
        try:
            save(session, ack.lease, ack.name, ack.value, now + step_since(session, stepped))
        except DriverError as error:
            return error
        return None

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

    def __init__(self, database: Database, lease: Lease, reading: Reading) -> None:
        self._database = database
        self._inner = SqliteTransactionSync(database, lease, reading)

    async def __aenter__(self) -> sqlite3.Connection:
        inner, background = self._inner, self._database.background
        if inner._connection is not None:
            return inner.__enter__()
        background.start()  # before the turn has come, which only the thread can end
        await self._database.writer.turns.take_async(LOCK_TIMEOUT_S)
        try:
            connection = await background.run(inner.begin)
            OWN_WRITE.set(inner)
            return connection
        except BaseException:
            background.put(inner.rollback)  # it was cancelled, and may be open by then
            raise

    async def __aexit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    async def commit(self, ack: Ack | SaveStep, now: datetime) -> TaskHarborError | None:
        return await self._database.background.run(partial(self._inner.commit, ack, now))

    async def rollback(self) -> None:
        await self._database.background.run(self._inner.rollback)

    async def abort(self, why: str) -> None:
        await self._database.background.run(partial(self._inner.abort, why))
