"""Connections to one server: a small pool of our own over connections that redis-py makes (see wire.py).

A call takes a connection, sends, reads, and gives it back; one whose reply was not read whole is closed, so a cancelled
call never leaves its reply to the next. Nothing runs beside the calls, and nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from taskharbor.drivers.redis.options import Options
from taskharbor.drivers.redis.scripts import Script, anchors
from taskharbor.drivers.redis.wire import Wire, hang_up

Address = tuple[str, int]
Command = Sequence[Any]
# redis-py tells the server its name and version, and looks for them among the installed packages each time: 2 ms.
NAMELESS: dict[str, Any] = {"driver_info": None} if find_spec("redis.driver_info") else {}


# A connection that leads nowhere is known after some seconds, in time to try another one.
KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_KEEPIDLE", 4),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 4_000),
    )
    if hasattr(socket, name)
}


def connect(options: Options, address: Address, **changes: Any) -> AbstractConnection:
    """A connection, not yet made: no call may hang on a network that is gone."""
    settings: dict[str, Any] = {
        "host": address[0],
        "port": address[1],
        "db": options.database,
        "username": options.username,
        "password": options.password,
        "socket_timeout": None,  # redis-py's own may swallow a cancellation (asyncio.wait_for); ours is in `call`
        "socket_connect_timeout": options.connect_timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": KEEPALIVE,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "taskharbor",
        **NAMELESS,
        **changes,
    }
    if options.tls:
        return SSLConnection(**settings, **dict(options.ssl))
    return Connection(**settings)


async def dial(options: Options, connection: AbstractConnection) -> None:
    """Make the connection."""
    async with asyncio.timeout(2 * options.connect_timeout):
        await connection.connect()  # type: ignore[no-untyped-call]


class Pool:
    """The connections of one event loop to one server."""

    def __init__(self, options: Options, address: Address) -> None:
        self.address = address
        self._options = options
        self._idle: list[Wire] = []
        self._room = asyncio.Semaphore(options.pool_size)
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Close what is not in use: after an outage these lead nowhere."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect()

    async def call(self, *commands: Command, within: float | None = None) -> list[Any]:
        """Send commands on one connection and answer their replies; an error of the server is one of the replies.
        `within`: they are given up after this many seconds, if that is sooner than usual."""
        async with self._room:
            wire = await self._wire()
            whole = False
            try:
                replies = await wire.call(commands, within)
                whole = True
                return replies
            finally:
                if whole and not self._closed:
                    self._idle.append(wire)
                else:
                    await wire.disconnect()

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if not wire.closed:
                return wire
            await wire.disconnect()
        connection = connect(self._options, self.address)
        try:
            await dial(self._options, connection)
            return Wire(connection, self._options.timeout)
        except BaseException:
            await hang_up(connection)
            raise

    async def ask(self, *command: Any) -> Any:
        """One command; an error of the server is raised."""
        (reply,) = await self.call(command)
        if isinstance(reply, Exception):
            raise reply
        return reply


def by_hash(script: Script, queue: str, argument: bytes, cluster: bool = False) -> Command:
    keys = anchors(queue, cluster)
    return ("EVALSHA", script.sha, len(keys), *keys, argument)


def by_text(script: Script, queue: str, argument: bytes, cluster: bool = False) -> Command:
    keys = anchors(queue, cluster)
    return ("EVAL", script.text, len(keys), *keys, argument)
