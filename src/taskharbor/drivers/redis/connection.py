"""One awaited connection to one server: bytes out, replies in, one call at a time; or a subscription that only listens.

A connection is an asyncio protocol with hiredis' parser, without streams and without a task or timer for each reply:
these cost more than the call itself. A call that was cancelled or ran out of time closes its connection, so that its
reply never reaches the next call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from redis.exceptions import ConnectionError

from taskharbor.drivers.redis import tls
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.resp import (
    CLIENT_NAME,
    INCOMPLETE,
    Address,
    Command,
    cannot_connect,
    check_login,
    discard_unsent,
    login_commands,
    packed,
    packed_all,
    reply_reader,
    set_keepalive,
)

MAX_IDLE_S = 30.0  # an idle connection older than this is not trusted


async def dial(
    options: RedisOptions, address: Address, client_name: str | None = CLIENT_NAME, seconds: float | None = None
) -> RespConnection:
    """A new connection that has logged in. TimeoutError after `connect_timeout` seconds, or fewer."""
    limit = options.connect_timeout if seconds is None else min(seconds, options.connect_timeout)
    try:
        async with asyncio.timeout(limit):
            made = await _connect(asyncio.get_running_loop(), options, address)
            await log_in(made, options, limit, client_name)
            return made
    except TimeoutError as error:
        raise TimeoutError(f"no connection within {limit:.2g} s") from error


async def log_in(made: Any, options: RedisOptions, seconds: float, client_name: str | None = CLIENT_NAME) -> None:
    """The login of a new connection; it is closed if that fails."""
    try:
        commands = login_commands(options, client_name)
        if commands:
            check_login(commands, await made.call(commands, seconds))
    except BaseException:
        await made.disconnect()
        raise


async def _connect(loop: asyncio.AbstractEventLoop, options: RedisOptions, address: Address) -> RespConnection:
    def protocol() -> RespConnection:
        return RespConnection(options.timeout)

    try:
        if options.socket is not None:
            return (await loop.create_unix_connection(protocol, options.socket))[1]
        host, port = address
        context = tls.context(options.ssl) if options.tls else None
        transport, made = await loop.create_connection(protocol, host, port, ssl=context)
        set_keepalive(transport.get_extra_info("socket"))
        return made
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise
        raise cannot_connect(options, address, error) from error


class RespConnection(asyncio.Protocol):
    """A connection that sends commands and returns their replies."""

    def __init__(self, timeout: float) -> None:
        self._timeout = self._limit = timeout
        self._loop = asyncio.get_running_loop()
        self._reader = reply_reader()
        self._replies: list[Any] = []
        self._wanted = 0
        self._waiter: asyncio.Future[list[Any]] | None = None
        self._deadline = 0.0
        self._timer: asyncio.Handle | None = None  # one for all calls: it fires when the next may be overdue
        self._fires = 0.0  # when it does, in the loop's time; not every loop's handles know it
        self._used = self._loop.time()
        self.closed = False
        self._reason: BaseException | None = None  # why it was closed, if no call waited for a reply then
        self.transport: asyncio.Transport

    @property
    def usable(self) -> bool:
        """Whether a call may use it: not known to be closed, and used lately. Firewalls and load balancers drop idle
        connections without telling either side."""
        return not self.closed and self._loop.time() - self._used < MAX_IDLE_S

    async def call(self, commands: Sequence[Command], within: float | None = None) -> list[Any]:
        """Send commands and return their replies; an error of the server is one of the replies. The call is given up
        after `within` seconds, if that is less than the usual timeout."""
        if self.closed:
            raise self._reason or ConnectionError("the connection is closed")
        waiter: asyncio.Future[list[Any]] = self._loop.create_future()
        self._waiter = waiter
        self._wanted, self._replies = len(commands), []
        self._limit = self._timeout if within is None else min(within, self._timeout)
        self._deadline = self._loop.time() + self._limit
        if self._timer is None or self._fires > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer()
        try:  # a command that cannot be packed is never sent, so nobody waits for its reply
            self.transport.write(packed(commands[0]) if len(commands) == 1 else packed_all(commands))
            return await waiter
        finally:
            self._waiter = None
            self._used = self._loop.time()

    def _set_timer(self) -> None:
        self._fires = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._deadline:
            self._fail(TimeoutError(f"no answer within {round(self._limit, 1):g} s"))
            discard_unsent(self.transport.get_extra_info("socket"))
            self.transport.abort()
        else:
            self._set_timer()

    def _fail(self, error: BaseException) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        elif self._reason is None:
            self._reason = error
        self.closed = True

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # by its methods: uvloop's has another base class

    def data_received(self, data: bytes) -> None:
        reader, waiter = self._reader, self._waiter
        try:
            reader.feed(data)
            while (reply := reader.gets(False)) is not INCOMPLETE:
                self._replies.append(reply)
        except Exception as error:  # the bytes are not a reply of Redis
            self._fail(ConnectionError(f"not a reply of Redis: {type(error).__name__}"))
            return
        if waiter is None or len(self._replies) > self._wanted:
            first = self._replies[0] if self._replies else None  # such as "max number of clients reached"
            detail = f": {first}" if isinstance(first, Exception) else ""
            self._fail(ConnectionError(f"more replies than commands{detail}"))
        elif len(self._replies) == self._wanted and not waiter.done():
            waiter.set_result(self._replies)

    def connection_lost(self, exc: Exception | None) -> None:
        last = self._replies[-1] if self._replies else None
        if isinstance(last, Exception):  # the server said why before it closed the connection
            self._fail(ConnectionError(str(last)))
        self._fail(ConnectionError(f"the connection was lost: {exc}" if exc else "the server closed the connection"))

    async def disconnect(self) -> None:
        """Close it at once. A connection with TLS would otherwise wait for the server's goodbye, and outlive its event
        loop."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.transport.abort()
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next iteration of the loop


class PubSubListener(asyncio.Protocol):
    """A connection that only listens: `receive` is called with each message as it comes. `over` is done when the
    connection is lost."""

    def __init__(self, connection: RespConnection, receive: Callable[[Any], None]) -> None:
        self._receive = receive
        self._reader = reply_reader()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = connection.transport
        self._transport.set_protocol(self)
        if connection.closed:
            self.connection_lost(None)

    def send(self, *command: Any) -> None:
        self._transport.write(packed(command))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets(False)) is not INCOMPLETE:
                self._receive(reply)
        except Exception:  # neither a reply of Redis nor a message of a subscription
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)
