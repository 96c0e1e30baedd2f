"""Connections to one server: a small pool of our own over connections that redis-py makes (see wire.py).

A call takes a connection, sends, reads, and gives it back; one whose reply was not read whole is closed, so a cancelled
call never leaves its reply to the next. Nothing runs beside the commands, and nothing is sent twice here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError

from taskharbor.drivers.redis.connection import RespConnection, hang_up
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.scripts import Script, anchors

Address = tuple[str, int]
Command = Sequence[Any]
FULL = "max number of clients reached"  # what a server says that takes no more connections
LEAST = 0.1  # seconds that a call has at least, however long it waited for a connection
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


def connect(options: RedisOptions, address: Address, **changes: Any) -> AbstractConnection:
    """A connection, not yet made: no call may hang on a network that is gone."""
    settings: dict[str, Any] = {
        "db": options.database,
        "username": options.username,
        "password": options.password,
        "socket_timeout": None,  # redis-py's own may swallow a cancellation (asyncio.wait_for); ours is in `call`
        "socket_connect_timeout": options.connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "client_name": "taskharbor",
        **NAMELESS,
        **changes,
    }
    if options.socket is not None:
        return UnixDomainSocketConnection(path=options.socket, **settings)
    settings |= {
        "host": address[0],
        "port": address[1],
        "socket_keepalive": True,
        "socket_keepalive_options": KEEPALIVE,
    }
    if options.tls:
        return SSLConnection(**settings, **dict(options.ssl))
    return Connection(**settings)


async def dial(options: RedisOptions, connection: AbstractConnection) -> None:
    """Make the connection: reach the server, shake hands, log in."""
    async with asyncio.timeout(options.connect_timeout):
        await connection.connect()  # type: ignore[no-untyped-call]


class RedisPool:
    """The connections of one event loop to one server."""

    def __init__(self, options: RedisOptions, address: Address) -> None:
        self.address = address
        self._options = options
        self._idle: list[RespConnection] = []
        self._under_way = 0  # connections in use, or just made
        self._room = asyncio.Semaphore(options.pool_size)
        self._freed = asyncio.Event()  # set whenever one of them is no longer
        self._closed = False

    @property
    def name(self) -> str:
        """The server, for people."""
        return self._options.socket or f"{self.address[0]}:{self.address[1]}"

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
        `within`: they are given up after this many seconds, the wait for a connection included, if that is sooner than
        usual."""
        loop = asyncio.get_running_loop()
        end = None if within is None else loop.time() + within
        if self._idle and self._idle[-1].usable and not self._room.locked():
            await self._room.acquire()  # at once
            wire = self._idle.pop()
        else:
            wire = await self._waited(self._options.connect_timeout if within is None else within)
        self._under_way += 1
        whole = False
        try:
            replies = await wire.call(commands, None if end is None else max(end - loop.time(), LEAST))
            whole = True
            return replies
        finally:
            self._under_way -= 1
            self._room.release()
            self._freed.set()
            if whole and not self._closed:
                self._idle.append(wire)
            else:
                await wire.disconnect()

    async def _waited(self, seconds: float) -> RespConnection:
        """A place in the pool, and a connection: a new one, or one that another call gives back."""
        seconds = min(seconds, self._options.connect_timeout)
        entered = False
        try:
            async with asyncio.timeout(seconds):
                entered = await self._room.acquire()
                return await self._wire()
        except BaseException as error:
            if entered:
                self._room.release()
            if isinstance(error, TimeoutError):
                what = "no connection" if entered else f"all {self._options.pool_size} connections were in use"
                raise TimeoutError(f"{what} within {seconds:g} s") from error
            raise

    async def _wire(self) -> RespConnection:
        while True:
            while self._idle:
                wire = self._idle.pop()
                if wire.usable:
                    return wire
                await wire.disconnect()
            try:
                return await self._dialled()
            except ConnectionError as error:
                if FULL not in str(error):
                    raise
                if not self._under_way and not self._idle:
                    raise ConnectionError(f"{FULL}; raise maxclients on the server, or lower pool_size") from error
            if not self._idle:  # one of those that there are will do
                self._freed.clear()
                await self._freed.wait()

    async def _dialled(self) -> RespConnection:
        connection = connect(self._options, self.address)
        self._under_way += 1
        try:
            await dial(self._options, connection)
            return RespConnection(connection, self._options.timeout)
        except BaseException:
            await hang_up(connection)
            raise
        finally:
            self._under_way -= 1
            self._freed.set()

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
