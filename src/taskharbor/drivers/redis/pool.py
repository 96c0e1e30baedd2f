"""Connections of one event loop to one server: a bounded pool.

A call takes a connection, sends, reads, and returns the connection. A connection whose reply was not read completely is
closed, so that a cancelled call never leaves its reply to the next one. The pool runs nothing in the background and
sends nothing twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import ConnectionError

from taskharbor.drivers.redis.connection import RespConnection, dial
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.resp import TOO_MANY_CLIENTS, Address, Command, server_name

MIN_CALL_S = 0.1  # a call has at least this long, however long it waited for a connection


class RedisPool:
    """The connections of one event loop to one server."""

    def __init__(self, options: RedisOptions, address: Address) -> None:
        self.address = address
        self._options = options
        self._idle: list[RespConnection] = []
        self._under_way = 0  # connections in use, or being made
        self._places = asyncio.Semaphore(options.pool_size)
        self._freed = asyncio.Event()  # set whenever one of them is free again
        self._closed = False

    @property
    def name(self) -> str:
        """The server as people write it."""
        return server_name(self._options, self.address)

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Close the connections that are not in use: after an outage they lead nowhere."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect()

    async def call(self, *commands: Command, within: float | None = None) -> list[Any]:
        """Send commands on one connection and return their replies; an error of the server is one of the replies.
        `within`: they are given up after this many seconds, the wait for a connection included, if that is sooner than
        usual."""
        loop = asyncio.get_running_loop()
        end = None if within is None else loop.time() + within
        if self._idle and self._idle[-1].usable and not self._places.locked():
            await self._places.acquire()  # at once
            connection = self._idle.pop()
        else:
            connection = await self._after_waiting(self._options.connect_timeout if within is None else within)
        self._under_way += 1
        is_complete = False  # whether every reply was read
        try:
            replies = await connection.call(commands, None if end is None else max(end - loop.time(), MIN_CALL_S))
            is_complete = True
            return replies
        finally:
            self._under_way -= 1
            self._places.release()
            self._freed.set()
            if is_complete and not self._closed:
                self._idle.append(connection)
            else:
                await connection.disconnect()

    async def _after_waiting(self, seconds: float) -> RespConnection:
        """A place in the pool, and a connection: a new one, or one that another call returns."""
        seconds = min(seconds, self._options.connect_timeout)
        entered = False
        try:
            async with asyncio.timeout(seconds):
                entered = await self._places.acquire()
                return await self._idle_or_new()
        except BaseException as error:
            if entered:
                self._places.release()
            if isinstance(error, TimeoutError):
                what = "no connection" if entered else f"all {self._options.pool_size} connections were in use"
                raise TimeoutError(f"{what} within {seconds:g} s") from error
            raise

    async def _idle_or_new(self) -> RespConnection:
        while True:
            while self._idle:
                connection = self._idle.pop()
                if connection.usable:
                    return connection
                await connection.disconnect()
            try:
                return await self._dial()
            except ConnectionError as error:
                if TOO_MANY_CLIENTS not in str(error):
                    raise
                if not self._under_way and not self._idle:
                    raise ConnectionError(
                        f"{TOO_MANY_CLIENTS}; raise maxclients on the server, or lower pool_size"
                    ) from error
            if not self._idle:  # an existing connection will do
                self._freed.clear()
                await self._freed.wait()

    async def _dial(self) -> RespConnection:
        self._under_way += 1
        try:
            return await dial(self._options, self.address)
        finally:
            self._under_way -= 1
            self._freed.set()

    async def ask(self, *command: Any) -> Any:
        """One command; an error of the server is raised."""
        (reply,) = await self.call(command)
        if isinstance(reply, Exception):
            raise reply
        return reply
