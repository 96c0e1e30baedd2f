"""Connections of our own: one statement at a time on libpq, and waiting for it on an event loop.

psycopg's cursors would cost three to six times as much as a statement here (docs/driver-postgres.md has the figures).
So a statement goes to libpq directly, through `connection.pgconn`, and statements that repeat are prepared. What is
sent and what its result means is `LibpqConnection`; waiting for the socket differs: `FastConnection` does it on a loop,
blocking.py on the calling thread.

Of psycopg this uses the documented `pgconn`, `psycopg.pq` and `errors`, and one class whose methods its documentation
does not list: `psycopg.adapt.Transformer` (`set_pgresult`, `load_rows`), which turns a result into rows. pyproject.toml
therefore bounds psycopg's version, and tests/drivers/test_postgres_connections.py runs on the lowest and the newest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from taskharbor.drivers.postgres.deadline import cut
from taskharbor.drivers.postgres.statement import numbered

PREPARE_AFTER = 3  # a statement is prepared when it is sent for the third time
MAX_PREPARED = 50  # statements of one connection
STOP_S = 5.0  # for the server to end a call that was cancelled
LAST_S, LAST_SHARE = 1.0, 0.1  # of a call's time, at most: in which the server may still say that it has stopped it
# How often a call that waits reads by itself. uvloop tells an error once, and watches no longer: if the server's last
# words came with it, these would be read, and the error never.
LOOK_S = 1.0
_SUCCEEDED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def can_cancel() -> bool:
    """Whether a statement can be cancelled without risk.

    Before libpq 17 a cancel request has no time limit, and psycopg keeps the interpreter's lock meanwhile: on a dead
    network the whole process would stand still. Then connections are only cut, and the server ends the statement later.
    """
    return psycopg.capabilities.has_cancel_safe()


class LibpqConnection:
    """One connection, used by one call at a time. A subclass waits for the results."""

    stop_at = math.inf  # when the server is asked to stop the call under way, in the time of its runner
    until = math.inf  # when that call is given up
    late = False  # whether the call is one of these
    idle_since = 0.0
    on_notify: Callable[[str | None], None] | None = None  # gets each notification; None: the connection is lost
    # Whether a call that is cancelled waits here until the server has stopped. If not, its runner stops or closes it.
    awaits_stop = False

    def __init__(self, connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
        self.prepares = False  # whether statements may be prepared on this connection
        self.sent: dict[str, int] = {}  # statement → how often it was sent before it was prepared
        self._pgconn = connection.pgconn
        self._rows = Transformer(connection)
        self._names: dict[str, bytes] = {}  # statement → the name under which it is prepared
        self._outdated: list[str] = []  # statements that were prepared before a table changed

    async def _received(self) -> PGresult:
        """Send what is left to send, and wait until the result is complete."""
        raise NotImplementedError

    def lend(self, until: float, limit: float) -> None:
        """For a call that is given up at `until`, `limit` seconds from now. Shortly before, the server is asked to stop
        it: what a caller has given up must not go on, and hold locks, or lease jobs that nobody runs."""
        self.until, self.late = until, False
        self.stop_at = until - min(LAST_S, limit * LAST_SHARE)

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and the server is in no transaction and owes no result."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_reusable(self) -> bool:
        """Whether another call may have it. After a cancel request it may not: that could reach its statement."""
        return self.is_idle and not self.late

    async def ask(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """The rows of one statement; its parameters are texts, numbers, booleans or None."""
        # None and numbers are encoded here: a call for each of an enqueue's 14 parameters is 1 % of its instructions.
        texts = [
            value if value is None else b"%d" % value if type(value) is int else _text(value) for value in parameters
        ]
        name = self._names.get(sql)
        if name is None and self.prepares:
            name = await self._prepare(sql)
        self._send(name, sql, texts)
        result = await self._received()
        if result.status not in _SUCCEEDED:
            self._after_failure(name, sql, errors.error_from_result(result))
            self._send(None, sql, texts)
            result = await self._received()
            if result.status not in _SUCCEEDED:
                raise errors.error_from_result(result)
        if not result.ntuples:
            return []
        self._rows.set_pgresult(result)
        try:
            return self._rows.load_rows(0, result.ntuples, tuple)
        finally:
            self._rows.set_pgresult(None)

    def _send(self, name: bytes | None, sql: str, texts: list[bytes | None]) -> None:
        if name is None:
            self._pgconn.send_query_params(numbered(sql).encode(), texts, result_format=Format.BINARY)
        else:
            self._pgconn.send_query_prepared(name, texts, result_format=Format.BINARY)

    def _after_failure(self, name: bytes | None, sql: str, error: psycopg.Error) -> None:
        """Return if the statement only needs to be sent again unprepared; else raise the error."""
        if isinstance(error, errors.InvalidSqlStatementName):
            # A pooler that the DSN does not name runs each call on another session.
            self.prepares = False
            self._names.clear()
        elif isinstance(error, errors.FeatureNotSupported) and name is not None:
            # "cached plan must not change result type": a table was changed.
            del self._names[sql]
            self._outdated.append(sql)
        else:
            raise error
        if self._pgconn.transaction_status != TransactionStatus.IDLE:
            raise error

    async def _prepare(self, sql: str) -> bytes | None:
        times = self.sent[sql] = self.sent.get(sql, 0) + 1
        if times < PREPARE_AFTER or len(self._names) >= MAX_PREPARED:
            return None
        # The name is a digest of the text: no name ever stands for two statements, whatever else uses the session.
        text = sql + "." * self._outdated.count(sql)
        name = b"taskharbor_" + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().encode()
        self._pgconn.send_prepare(name, numbered(sql).encode())
        result = await self._received()
        if result.status not in _SUCCEEDED:
            error = errors.error_from_result(result)
            if not isinstance(error, errors.DuplicatePreparedStatement):
                raise error
            if self._pgconn.transaction_status == TransactionStatus.INERROR:
                self.prepares = False
                raise error
        self._names[sql] = name
        return name


def _text(value: str | int) -> bytes:
    """A parameter in PostgreSQL's text format. NUL is refused: libpq would end the text there."""
    if isinstance(value, str):
        text = str.encode(value)
        if b"\x00" in text:
            raise psycopg.DataError("PostgreSQL's text cannot hold NUL")
        return text
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return b"%d" % value


class FastConnection(LibpqConnection):
    """It waits for results on the event loop.

    The loop watches the socket from one call to the next, which saves two registrations a call. `for_psycopg()`
    lends the connection to psycopg's own methods: these watch the socket themselves.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection)
        self._connection = connection
        self._timer: asyncio.Handle | None = None
        self._fires = 0.0  # when the timer does, in the loop's time; not every loop's handles know it
        self._watched: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._waiter: asyncio.Future[PGresult] | None = None
        self._last: PGresult | None = None
        self._stopping: asyncio.Task[None] | None = None

    def for_psycopg(self) -> psycopg.AsyncConnection[Any]:
        """psycopg's connection, for its own methods, until the next `ask`."""
        self._unwatch()
        return self._connection

    @property
    def is_busy(self) -> bool:
        """Whether a result is still to come that no call waits for."""
        return self._pgconn.transaction_status == TransactionStatus.ACTIVE

    async def stop(self) -> None:
        """After a call was cancelled: ask the server to stop, and discard what it still sends.

        If that is not possible the connection stays busy, and is to be closed.
        """
        if self.is_busy and can_cancel():
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                await self._ask_to_stop(STOP_S)
                async with asyncio.timeout(STOP_S):
                    await self._result()

    async def _ask_to_stop(self, seconds: float) -> None:
        with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
            await self._connection.cancel_safe(timeout=seconds)

    async def close(self) -> None:
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()
        if self._stopping is not None:
            self._stopping.cancel()
            await asyncio.gather(self._stopping, return_exceptions=True)
        await self._connection.close()
        self._note_loss()

    def _note_loss(self) -> None:
        on_notify, self.on_notify = self.on_notify, None
        if on_notify is not None:
            on_notify(None)

    async def _received(self) -> PGresult:
        try:
            return await self._result()
        except asyncio.CancelledError:
            if self.awaits_stop:
                await self.stop()
            raise

    # The socket

    async def _result(self) -> PGresult:
        pgconn = self._pgconn
        loop = asyncio.get_running_loop()
        if self._watched is None:
            self._watched = loop, pgconn.socket
            loop.add_reader(pgconn.socket, self._readable)
        waiter: asyncio.Future[PGresult] = loop.create_future()
        self._waiter = waiter
        if self._timer is None or self._next_look < self._fires:
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
        self._fires = min(loop.time() + LOOK_S, self._next_look)
        self._timer = loop.call_at(self._fires, self._timer_fired, loop)

    @property
    def _next_look(self) -> float:
        return self.until if self.late else self.stop_at

    def _timer_fired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if loop.time() >= self.until:
            self.late, self.until = True, math.inf
            cut(self._connection)
        elif loop.time() >= self.stop_at and not self.late and self._waiter is not None:
            self.late = True
            if can_cancel():
                self._stopping = loop.create_task(self._ask_to_stop(LAST_S), name="taskharbor-stop")
        if self._waiter is not None:
            self._readable()
        if self._waiter is not None:
            self._set_timer(loop)

    def _readable(self) -> None:
        try:
            self._pgconn.consume_input()
            self._take()
            while self.on_notify is not None and (notify := self._pgconn.notifies()) is not None:
                self.on_notify(notify.extra.decode())
        except psycopg.Error as error:
            self._unwatch()
            self._end(error)
            self._note_loss()

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
