"""A connection of the pool: psycopg's, with a short way for one statement at a time.

psycopg's own cursors cost three times what a call of ours does otherwise: here the statement goes to libpq at once, the
loop watches the socket from one call to the next, and what is sent often is prepared, except through pgbouncer. Nobody
but the pool makes one; whatever else psycopg offers still works on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from taskharbor.drivers.postgres.deadline import cut
from taskharbor.drivers.postgres.statement import numbered

OFTEN = 3  # a statement is prepared when it is sent for the third time
MOST = 50  # statements that one connection prepares
GRACE = 5.0  # seconds for the server to end a call that was cancelled
_ROWS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class FastConnection(psycopg.AsyncConnection[Any]):
    """One connection, used by one call at a time."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.prepares = False
        self.until: float | None = None  # when the call under way is given up, by the loop's time
        self.settles = True  # a call that is cancelled waits until the server has stopped; else see `settle`
        self.late = False
        self.__timer: asyncio.TimerHandle | None = None
        self.sent: dict[str, int] = {}  # which statements, and how often until they were prepared
        self.__names: dict[str, bytes] = {}
        self.__outdated: list[str] = []  # statements that were prepared before somebody changed a table
        self.__rows = Transformer(self)
        self.__watched: tuple[asyncio.AbstractEventLoop, int] | None = None
        self.__answer: asyncio.Future[PGresult] | None = None
        self.__last: PGresult | None = None

    async def ask(self, sql: str, parameters: Sequence[Any]) -> list[Any]:
        """The rows of one statement; its parameters are texts, numbers, booleans or None."""
        given = [_text(value) for value in parameters]
        name = self.__names.get(sql)
        if name is None and self.prepares:
            name = await self.__prepared(sql)
        try:
            result = await self.__sent_as(name, sql, given)
        except errors.InvalidSqlStatementName:  # a pooler that nobody told us of gives each call another session
            self.prepares = False
            self.__names.clear()
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                raise
            result = await self.__sent_as(None, sql, given)
        except errors.FeatureNotSupported:  # "cached plan must not change result type": somebody has changed a table
            if name is None:
                raise
            del self.__names[sql]
            self.__outdated.append(sql)
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                raise
            result = await self.__sent_as(None, sql, given)
        if not result.ntuples:
            return []
        self.__rows.set_pgresult(result)
        try:
            return self.__rows.load_rows(0, result.ntuples, tuple)
        finally:
            self.__rows.set_pgresult(None)

    async def __sent_as(self, name: bytes | None, sql: str, given: list[bytes | None]) -> PGresult:
        if name is None:
            self.pgconn.send_query_params(numbered(sql).encode(), given, result_format=Format.BINARY)
        else:
            self.pgconn.send_query_prepared(name, given, result_format=Format.BINARY)
        return await self.__result()

    async def __prepared(self, sql: str) -> bytes | None:
        times = self.sent[sql] = self.sent.get(sql, 0) + 1
        if times < OFTEN or len(self.__names) >= MOST:
            return None
        # Named by what it says: no name ever stands for two statements, whoever shares the session.
        text = sql + "." * self.__outdated.count(sql)
        name = b"taskharbor_" + hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().encode()
        self.pgconn.send_prepare(name, numbered(sql).encode())
        try:
            await self.__result()
        except errors.DuplicatePreparedStatement:
            if self.pgconn.transaction_status == TransactionStatus.INERROR:
                self.prepares = False
                raise
        self.__names[sql] = name
        return name

    @property
    def busy(self) -> bool:
        """Whether an answer is still to come that nobody waits for."""
        return not self.closed and self.pgconn.transaction_status == TransactionStatus.ACTIVE

    async def settle(self) -> None:
        """After a call was cancelled: ask the server to stop, and read away what it still answers."""
        if self.busy:
            with contextlib.suppress(psycopg.Error, OSError, TimeoutError):
                await self.cancel_safe(timeout=GRACE)
                async with asyncio.timeout(GRACE):
                    await self.__answered()

    async def __result(self) -> PGresult:
        """What the server answers to what was sent."""
        try:
            result = await self.__answered()
        except asyncio.CancelledError:
            if self.settles:
                await self.settle()
            raise
        if result.status not in _ROWS:
            raise errors.error_from_result(result)
        return result

    # The socket

    async def __answered(self) -> PGresult:
        """Send what is left to send, and wait until all of the answer is there."""
        pgconn = self.pgconn
        loop = asyncio.get_running_loop()
        if self.__watched is None:
            self.__watched = loop, pgconn.socket
            loop.add_reader(pgconn.socket, self.__read)
        answer: asyncio.Future[PGresult] = loop.create_future()
        self.__answer = answer
        self.__arm(loop)
        try:
            if pgconn.flush():
                loop.add_writer(pgconn.socket, self.__write)
            self.__take()  # after a cancel all of it may have been read before
            return await answer
        finally:
            self.__answer = None

    def __arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """One timer serves many calls: most have ended long before it looks."""
        if self.__timer is None and self.until is not None:
            self.__timer = loop.call_at(self.until, self.__tick, loop)

    def __tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self.__timer = None
        if self.until is not None and loop.time() < self.until:
            self.__arm(loop)
        elif self.until is not None:
            self.late = True
            cut(self)

    def __read(self) -> None:
        try:
            self.pgconn.consume_input()
            self.__take()
        except psycopg.Error as error:
            self.__unwatch()
            self.__end(error)

    def __take(self) -> None:
        """What has been read of the answer; asking libpq for more would block the loop."""
        while self.__answer is not None and not self.pgconn.is_busy():
            result = self.pgconn.get_result()
            if result is None:
                self.__end(None)
            else:
                self.__last = result

    def __write(self) -> None:
        assert self.__watched is not None
        loop, socket = self.__watched
        try:
            if not self.pgconn.flush():
                loop.remove_writer(socket)
        except psycopg.Error as error:
            self.__unwatch()
            self.__end(error)

    def __end(self, error: psycopg.Error | None) -> None:
        """Nothing more is to come: tell whoever waits for it."""
        answer, self.__answer = self.__answer, None
        result, self.__last = self.__last, None
        if answer is None or answer.done():
            return
        if result is not None:
            answer.set_result(result)
        else:
            answer.set_exception(error or psycopg.OperationalError("the connection is lost"))

    def __unwatch(self) -> None:
        if self.__watched is not None:
            (loop, socket), self.__watched = self.__watched, None
            if not loop.is_closed():
                loop.remove_reader(socket)
                loop.remove_writer(socket)

    async def wait(self, *arguments: Any, **named: Any) -> Any:
        """Everything that psycopg does by itself comes through here: then the socket is its own."""
        self.__unwatch()
        self.__arm(asyncio.get_running_loop())
        return await super().wait(*arguments, **named)

    async def close(self) -> None:
        self.__unwatch()
        if self.__timer is not None:
            self.__timer.cancel()
        await super().close()


def _text(value: str | int | None) -> bytes | None:
    """A parameter as PostgreSQL reads it; libpq would end it at a NUL."""
    if isinstance(value, str):
        text = str.encode(value)
        if b"\x00" in text:
            raise psycopg.DataError("PostgreSQL's text cannot hold NUL")
        return text
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return None if value is None else b"%d" % value
