"""A transaction that a handler's writes share with its job's ack: both are committed, or neither.

It holds the file's write lock from its first moment to its last: everybody else who writes to the file waits. So the
log says so when it lasts longer than a second. The handler can neither commit nor roll back; only core ends it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from taskharbor.drivers.sqlite.connect import begin, connect, unavailable
from taskharbor.drivers.sqlite.hub import Hub
from taskharbor.drivers.sqlite.settle import settle
from taskharbor.drivers.sqlite.tx import Tx
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack

logger = logging.getLogger("taskharbor.drivers.sqlite")
T = TypeVar("T")

LONG = 1.0  # seconds with the write lock after which the log says so


class HandlerConnection(sqlite3.Connection):
    """The connection a handler gets: `with connection:`, commit and rollback do not end the transaction."""

    def commit(self) -> None:
        """Core commits, together with the job's ack."""

    def rollback(self) -> None:
        raise RuntimeError("the transaction belongs to the job: raise an exception to roll it back")

    def __enter__(self) -> HandlerConnection:
        return self

    def __exit__(self, *raised: object) -> Any:
        return False


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


class SqliteTransactionSync:
    """`with transaction as connection`, then `commit` or `rollback`, all on one thread."""

    def __init__(self, hub: Hub, lease: Lease) -> None:
        self._hub = hub
        self._lease = lease
        self._connection: sqlite3.Connection | None = None
        self._alarm: threading.Timer | None = None

    def __enter__(self) -> sqlite3.Connection:
        if self._connection is None:
            self._begin()
        assert self._connection is not None
        return self._connection

    def __exit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    def _begin(self) -> None:
        writer, path = self._hub.writer, self._hub.address.path
        writer.take_turn()
        try:
            connection = connect(path, self._hub.address.synchronous, HandlerConnection)
            try:
                begin(connection, path)
            except BaseException:
                connection.close()
                raise
        except BaseException as error:
            writer.end_turn()
            if isinstance(error, sqlite3.Error | OSError):
                raise unavailable(path, error) from error
            raise
        connection.set_authorizer(_authorize)
        self._connection = connection
        self._alarm = threading.Timer(LONG, self._warn)
        self._alarm.daemon = True
        self._alarm.start()

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the ack and commit both. A refusal rolls both back and is answered."""
        connection = self._connection
        if connection is None:
            raise RuntimeError("the transaction has not begun, or has ended")
        connection.set_authorizer(None)
        connection.row_factory, connection.text_factory = None, str
        tx = Tx(connection)
        try:
            refused = settle(tx, [ack], now, self._hub.address.max_payload)[0]
            if refused is None:
                tx.flush()
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise unavailable(self._hub.address.path, error) from error
        finally:
            self.rollback()
        if refused is None and tx.arrived:
            self._hub.writer.lock.ring()
            self._hub.heard(tx.arrived)
        return refused

    def rollback(self) -> None:
        """Undo what is not committed and give the lock back."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            connection.close()  # which rolls back
        finally:
            self._hub.writer.end_turn()

    def _warn(self) -> None:
        logger.warning(
            "job %s has held the write lock of %s for %.0f s in its transaction: nobody else can enqueue, reserve or "
            "settle. Do slow work before the transaction begins.",
            self._lease.job_id,
            self._hub.address.path,
            LONG,
        )


class SqliteTransaction:
    """The same for a coroutine: what may wait for the lock or the disk does so on another thread."""

    def __init__(self, hub: Hub, lease: Lease) -> None:
        self._inner = SqliteTransactionSync(hub, lease)

    async def __aenter__(self) -> sqlite3.Connection:
        return await _on_a_thread(self._inner.__enter__, self._inner.rollback)

    async def __aexit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        return await _on_a_thread(lambda: self._inner.commit(ack, now))

    async def rollback(self) -> None:
        await _on_a_thread(self._inner.rollback)


async def _on_a_thread(work: Callable[[], T], undo: Callable[[], None] | None = None) -> T:
    """Run to its end even if the caller is cancelled meanwhile; `undo` follows then."""
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if undo is not None:
            future.add_done_callback(lambda done: None if done.cancelled() or done.exception() else undo())
        raise
