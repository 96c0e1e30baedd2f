"""Connections to one server: a bounded pool, of an event loop (here) or of the threads of a process (blocking.py).

A call takes a connection, sends, reads, and returns the connection. A connection whose replies were not read completely
is closed, so that a call that was cancelled, interrupted or timed out never leaves its reply to the next one. The pool
runs nothing in the background and sends nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from typing import Any

from redis.exceptions import ConnectionError, ReadOnlyError

from taskharbor.drivers.redis.connection import dial
from taskharbor.drivers.redis.options import RedisOptions
from taskharbor.drivers.redis.resp import TOO_MANY_CLIENTS, Address, Command, monotonic, server_name


class RedisPool:
    """The connections of one event loop to one server. `primary`: each must be to a primary."""

    def __init__(self, options: RedisOptions, address: Address, *, primary: bool = False) -> None:
        self.address = address
        self._options = options
        self._primary = primary
        self._idle: list[Any] = []
        self._closed = False
        self._places = self._make_places(options.pool_size)

    @property
    def name(self) -> str:
        """The server as people write it."""
        return server_name(self._options, self.address)

    async def close(self) -> None:
        self._closed = True
        await self.drop_idle()

    async def drop_idle(self) -> None:
        """Close the connections that are not in use: after an outage they lead nowhere."""
        while (connection := self._pop()) is not None:
            await connection.disconnect()

    async def ask(self, *command: Any, deadline: float = math.inf) -> Any:
        """One command; an error of the server is raised."""
        (reply,) = await self.call(command, deadline=deadline)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def call(self, *commands: Command, within: float | None = None, deadline: float = math.inf) -> list[Any]:
        """Send commands on one connection and return their replies; an error of the server is one of the replies.
        Ends within the timeout of the DSN, within `within` seconds with the wait for a connection, and by the
        deadline."""
        options, now = self._options, monotonic()
        limit = options.timeout if within is None else min(within, options.timeout)
        end = deadline if within is None else min(deadline, now + limit)
        connected_by = min(end, now + options.connect_timeout)
        me, connection = self._caller(), None
        try:
            if not await self._enter(me, connected_by - now):
                raise TimeoutError(f"all {options.pool_size} connections were in use within {connected_by - now:.2g} s")
            connection = self._pop()
            if connection is None or not connection.usable:
                connection = await self._another(me, connection, connected_by)
            left = end - monotonic()
            if left <= 0:
                raise TimeoutError("no time left")
            replies: list[Any] = await connection.call(commands, min(limit, left))
            if not self._closed:
                # In this order: a signal handler that raises must not close what another thread may have by now.
                used, connection = connection, None
                self._idle.append(used)
            return replies
        finally:
            self._places.inside.discard(me)  # first: after this one call no place can be lost
            if connection is not None:
                await connection.disconnect()
            self._places.wake()

    def _pop(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:  # there is none, or another thread was faster
            return None

    async def _another(self, me: object, connection: Any, deadline: float) -> Any:
        """A connection in place of one that cannot be used: an idle one, a new one, or one that another call
        returns."""
        while True:
            while connection is not None:
                if connection.usable:
                    return connection
                await connection.disconnect()
                connection = self._pop()
            if self._closed:
                raise ConnectionError("the connections to the store were closed")
            try:
                return await self._checked(await self._dial(deadline - monotonic()), deadline)
            except ConnectionError as error:
                if TOO_MANY_CLIENTS not in str(error):
                    raise
                if self._is_alone():
                    advice = "raise maxclients on the server, or lower pool_size"
                    raise ConnectionError(f"{TOO_MANY_CLIENTS}; {advice}") from error
            if (left := deadline - monotonic()) <= 0:
                raise TimeoutError(TOO_MANY_CLIENTS)
            await self._until_freed(me, left)  # another call's connection will do
            connection = self._pop()

    async def _checked(self, connection: Any, deadline: float) -> Any:
        """The new connection, if it is to a primary where it has to be."""
        if self._primary:
            try:
                (role,) = await connection.call([("ROLE",)], max(deadline - monotonic(), 0.001))
                if isinstance(role, list) and role[0] != b"master":  # a user who may not ask learns it by READONLY
                    raise ReadOnlyError(f"{self.name}, which the sentinels name, is a replica")
            except BaseException:
                await connection.disconnect()
                raise
        return connection

    # How calls wait, and connect: on an event loop

    def _make_places(self, limit: int) -> Any:
        return LoopPlaces(limit)

    def _caller(self) -> object:
        return object()

    async def _enter(self, me: object, seconds: float) -> bool:
        return bool(self._places.try_enter(me) or await self._places.enter(me, seconds))

    def _is_alone(self) -> bool:
        """Whether no other call will return a connection."""
        return len(self._places.inside) <= 1 and not self._idle

    async def _until_freed(self, me: object, seconds: float) -> None:
        if not self._idle:
            await self._places.until_freed(me, seconds)

    async def _dial(self, seconds: float) -> Any:
        return await dial(self._options, self.address, seconds=seconds)


class LoopPlaces:
    """At most `limit` calls of an event loop are inside at a time; the others wait. `signal_safe.ThreadLimit` does it
    for threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inside: set[object] = set()  # calls
        self._waiting: deque[tuple[object, asyncio.Future[None]]] = deque()
        self._freed = asyncio.Event()  # set whenever a call has left

    def try_enter(self, me: object) -> bool:
        """Take a place that is free."""
        if self._waiting or len(self.inside) >= self.limit:
            return False
        self.inside.add(me)
        return True

    async def enter(self, me: object, seconds: float) -> bool:
        """Take a place; False if none became free within `seconds`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((me, turn))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await turn
        return me in self.inside

    def wake(self) -> None:
        """Hand places that are free to the calls that have waited longest."""
        self._freed.set()
        while self._waiting and len(self.inside) < self.limit:
            caller, turn = self._waiting.popleft()
            if not turn.done():
                self.inside.add(caller)
                turn.set_result(None)

    async def until_freed(self, me: object, seconds: float) -> None:
        """Wait until another call has left. The caller keeps its place, but counts as none that will free one."""
        self._freed.clear()
        self.inside.discard(me)
        self.limit -= 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._freed.wait()
        finally:
            self.limit += 1
            self.inside.add(me)
