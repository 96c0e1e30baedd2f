"""A connection to one server at work: bytes out, replies in, one call at a time; or one that only listens.

redis-py makes the connection (address, TLS, login, database); from then on its transport is read and written here,
without streams, timeouts and tasks for each reply, which cost more than the call itself. A call that was cancelled or
ran out of time leaves its connection closed, never its reply to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    InvalidResponse,
    MasterDownError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

Command = Sequence[Any]
IDLE = 30.0  # seconds after which a connection that nobody used is not trusted
_MORE = object()
_WORDS: dict[str, type[ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOSCRIPT": NoScriptError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
}
_LOGIN = ("NOAUTH", "WRONGPASS")
_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script [^@]*@.*?: -([A-Z]+\b.*)", re.DOTALL)


def cause_of(text: str) -> str:
    """What a server says, without what Redis 6.2 puts before an error that comes from inside a script.

    >>> cause_of("ERR Error running script (call to f_1b): @user_script:1: @user_script: 1: -OOM command not allowed")
    'OOM command not allowed'
    """
    inside = _IN_SCRIPT.match(text)
    return inside[1] if inside else text


def error_of(text: str) -> RedisError:
    """An error of the server as redis-py calls it.

    >>> type(error_of("NOSCRIPT No matching script.")).__name__
    'NoScriptError'
    """
    text = cause_of(text)
    word, _, rest = text.partition(" ")
    if word in _WORDS:
        return _WORDS[word](rest)
    if word == "LOADING":
        return BusyLoadingError(rest)
    return AuthenticationError(text) if word in _LOGIN else ResponseError(text)


def packed(command: Command) -> bytes:
    """A command as the server reads it.

    >>> packed(("GET", b"key"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$3\\r\\nkey\\r\\n'
    """
    parts = [b"*%d\r\n" % len(command)]
    for given in command:
        data = given if type(given) is bytes else str(given).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


async def hang_up(connection: AbstractConnection) -> None:
    """Close a connection at once. One with TLS would wait for the server's goodbye, and outlive its event loop."""
    writer = connection._writer if isinstance(connection, SSLConnection) else None
    await connection.disconnect(nowait=True)
    if writer is not None:
        writer.transport.abort()
    if isinstance(connection, SSLConnection):
        await asyncio.sleep(0)  # a transport that is aborted closes its socket in the next turn of the loop


def taken_over(connection: AbstractConnection, protocol: asyncio.Protocol) -> asyncio.WriteTransport:
    """The transport of a connection; what it hears goes to the protocol from now on."""
    writer = connection._writer
    assert writer is not None, "the connection is made"
    transport: asyncio.WriteTransport = writer.transport
    transport.set_protocol(protocol)
    return transport


def _forget_unsent(transport: asyncio.WriteTransport) -> None:
    """What the server has not acknowledged is thrown away when the connection is closed: else the kernel goes on
    sending it, and a call that was given up is carried out when the network is back."""
    found = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class PubSubListener(asyncio.Protocol):
    """A connection that only listens: whatever comes is told in the turn in which it comes. `over` ends with it."""

    def __init__(self, connection: AbstractConnection, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=error_of, notEnoughData=_MORE)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = taken_over(connection, self)

    def send(self, *command: Any) -> None:
        self._transport.write(packed(command))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets(False)) is not _MORE:
                self._tell(reply)
        except Exception:  # not Redis' language, or not what one hears
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)


class RespConnection(asyncio.Protocol):
    """A connection that redis-py has made."""

    def __init__(self, connection: AbstractConnection, timeout: float) -> None:
        self._connection = connection
        self._timeout = self._limit = timeout
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=error_of, notEnoughData=_MORE)
        self._replies: list[Any] = []
        self._wanted = 0
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._deadline = 0.0
        self._watch: asyncio.TimerHandle | None = None  # one for all calls: it looks when the next may be overdue
        self._used = self._loop.time()
        self.closed = False
        self._transport = taken_over(connection, self)

    @property
    def usable(self) -> bool:
        """Whether a call may go out on it: it is open as far as one knows, and was used a moment ago. Firewalls and
        load balancers forget an idle connection and tell nobody."""
        return not self.closed and self._loop.time() - self._used < IDLE

    async def call(self, commands: Sequence[Command], within: float | None = None) -> list[Any]:
        """Send commands and answer their replies; an error of the server is one of the replies. `within`: as in
        RedisPool.call."""
        if self.closed:
            raise ConnectionError("the connection is closed")
        waiter: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiter = waiter
        self._wanted, self._replies = len(commands), []
        self._limit = self._timeout if within is None else min(within, self._timeout)
        self._deadline = self._loop.time() + self._limit
        if self._watch is None or self._watch.when() > self._deadline:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = self._loop.call_at(self._deadline, self._look)
        self._transport.write(packed(commands[0]) if len(commands) == 1 else b"".join(map(packed, commands)))
        try:
            return await waiter
        finally:
            self._waiter = None
            self._used = self._loop.time()

    def _look(self) -> None:
        """Whether the call under way has had its time."""
        self._watch = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError(f"no answer within {round(self._limit, 1):g} s"))
            _forget_unsent(self._transport)
            self._transport.abort()
        else:
            self._watch = self._loop.call_at(self._deadline, self._look)

    def _fail(self, error: BaseException) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        self.closed = True

    # What the transport tells

    def data_received(self, data: bytes) -> None:
        reader, waiter = self._reader, self._waiter
        try:
            reader.feed(data)
            while (reply := reader.gets(False)) is not _MORE:
                self._replies.append(reply)
        except Exception as error:  # what comes is not Redis' language
            self._fail(ConnectionError(f"not a reply of Redis: {type(error).__name__}"))
            return
        if waiter is None or len(self._replies) > self._wanted:
            self._fail(ConnectionError("more replies than commands"))
        elif len(self._replies) == self._wanted and not waiter.done():
            waiter.set_result(self._replies)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError(f"the connection was lost: {exc}" if exc else "the server closed the connection"))

    async def disconnect(self) -> None:
        """Close it, without waiting for the other side."""
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
        await hang_up(self._connection)
        if self._transport.get_extra_info("ssl_object") is not None:
            self._transport.abort()  # else it would wait for the server's goodbye, and outlive its event loop
