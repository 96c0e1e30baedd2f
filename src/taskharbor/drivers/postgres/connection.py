"""A connection of the pool: it waits for results on the event loop.

The loop watches the socket from one call to the next, which saves two registrations a call. `for_psycopg()`
lends the connection to psycopg's own methods: these watch the socket themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGresult

from taskharbor.drivers.postgres.deadline import cut
from taskharbor.drivers.postgres.exchange import Exchange

STOP_S = 5.0  # for the server to end a call that was cancelled
# How often a call that waits reads by itself. uvloop watches no longer after an error, and tells it once: if the server's
# last words came with it, these are read, and the error never.
LOOK_S = 1.0


def can_cancel() -> bool:
    """Whether a statement can be cancelled without risk.

    Before libpq 17 a cancel request has no time limit, and psycopg keeps the interpreter's lock meanwhile: on a dead
    network the whole process would stand still. Then connections are only cut, and the server ends the statement later.
    """
    return psycopg.capabilities.has_cancel_safe()


class FastConnection:
    """One connection, used by one call at a time."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.until: float | None = None  # when the call under way is given up, in the loop's time
        self.late = False  # whether one was
        # Whether a call that is cancelled waits here until the server has stopped. If not, the pool calls `stop` later.
        self.awaits_stop = True
        self.exchange = Exchange(connection)
        self._connection = connection
        self._pgconn = connection.pgconn
        self._timer: asyncio.Handle | None = None
        self._fires = 0.0  # when the timer does, in the loop's time; not every loop's handles know it
        self._watched: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._waiter: asyncio.Future[PGresult] | None = None
        self._last: PGresult | None = None

    async def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows of one statement; its parameters are texts, numbers, booleans or None."""
        exchange = self.exchange.ask(sql, parameters)
        next(exchange)
        try:
            while True:
                exchange.send(await self._result())
        except StopIteration as stop:
            result: list[Any] = stop.value
            return result

    def for_psycopg(self) -> psycopg.AsyncConnection[Any]:
        """psycopg's connection, for its own methods, until the next `ask`."""
        self._unwatch()
        return self._connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def busy(self) -> bool:
        """Whether a result is still to come that no call waits for."""
        return not self.closed and self._pgconn.transaction_status == TransactionStatus.ACTIVE

    @property
    def idle(self) -> bool:
        """Whether the server is in no transaction, and does nothing."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    async def stop(self) -> None:
        """After a call was cancelled: ask the server to stop, and discard what it still sends.

        If that is not possible the connection stays busy, and is to be closed.
        """
        if self.busy and can_cancel():
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                await self._connection.cancel_safe(timeout=STOP_S)
                async with asyncio.timeout(STOP_S):
                    await self._received()

    async def close(self) -> None:
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        await self._connection.close()

    async def _result(self) -> PGresult:
        try:
            return await self._received()
        except asyncio.CancelledError:
            if self.awaits_stop:
                await self.stop()
            raise

    # The socket

    async def _received(self) -> PGresult:
        """Send what is left to send, and wait until the result is complete."""
        pgconn = self._pgconn
        loop = asyncio.get_running_loop()
        if self._watched is None:
            self._watched = loop, pgconn.socket
            loop.add_reader(pgconn.socket, self._readable)
        waiter: asyncio.Future[PGresult] = loop.create_future()
        self._waiter = waiter
        if self._timer is None or (self.until is not None and self.until < self._fires):
            self._set_timer(loop)
        try:
            if pgconn.flush():
                loop.add_writer(pgconn.socket, self._writable)
            self._take()  # after a cancel all of it may have been read before
            return await waiter
        finally:
            self._waiter = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer serves many calls: most have ended long before it fires. A call that ends sooner moves it."""
        if self._timer is not None:
            self._timer.cancel()
        look = loop.time() + LOOK_S
        self._fires = look if self.until is None else min(look, self.until)
        self._timer = loop.call_at(self._fires, self._timer_fired, loop)

    def _timer_fired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self.until is not None and loop.time() >= self.until:
            self.late, self.until = True, None
            cut(self._connection)
        if self._waiter is not None:
            self._readable()
        if self._waiter is not None:
            self._set_timer(loop)

    def _readable(self) -> None:
        try:
            self._pgconn.consume_input()
            self._take()
        except psycopg.Error as error:
            self._unwatch()
            self._end(error)

    def _take(self) -> None:
        """Take the results that have been read; asking libpq for more would block the loop."""
        while self._waiter is not None and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                self._end(None)
            else:
                self._last = result

    def _writable(self) -> None:
        assert self._watched is not None
        loop, socket = self._watched
        try:
            if not self._pgconn.flush():
                loop.remove_writer(socket)
        except psycopg.Error as error:
            self._unwatch()
            self._end(error)

    def _end(self, error: psycopg.Error | None) -> None:
        """Nothing more is to come: wake the call that waits."""
        waiter, self._waiter = self._waiter, None
        result, self._last = self._last, None
        if waiter is None or waiter.done():
            return
        if result is not None:
            waiter.set_result(result)
        else:
            waiter.set_exception(error or psycopg.OperationalError("the connection is lost"))

    def _unwatch(self) -> None:
        if self._watched is not None:
            (loop, socket), self._watched = self._watched, None
            if not loop.is_closed():
                loop.remove_reader(socket)
                loop.remove_writer(socket)
