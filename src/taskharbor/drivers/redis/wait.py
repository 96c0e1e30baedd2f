"""Hints that work may have arrived: one subscription for each driver, opened by the first `wait`.

Scripts publish to the channel of a queue whenever a reserve may find more than before. A lost subscription is opened
again; until then `wait` checks the queues from time to time. A lost hint costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from taskharbor.drivers.redis.connection import PubSubListener, RespConnection
from taskharbor.drivers.redis.scripts import wake

CHECK_EVERY_S = 1.0
SUBSCRIBE_S = 2.0  # for which a wait lets the subscription come up

LastArrivals = Callable[[Sequence[str]], Awaitable[dict[str, int]]]


class ArrivalHints:
    """The waiters of one driver."""

    def __init__(
        self, connect: Callable[[], Awaitable[RespConnection]], last_arrivals: LastArrivals, database: int = 0
    ) -> None:
        self._connect = connect
        self._last_arrivals = last_arrivals
        self._wake = wake(database)
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there
        self._waiters: dict[asyncio.Future[bool], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listener: PubSubListener | None = None
        self._subscribed: dict[str, asyncio.Event] = {}

    def drained(self, queue: str, arrival: int) -> None:
        """A reserve left nothing in the queue."""
        self._seen[queue] = arrival

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline, names = loop.time() + timeout, frozenset(queues)
        await self._subscribe(queues, timeout)
        while True:
            waiter: asyncio.Future[bool] = loop.create_future()
            self._waiters[waiter] = names  # before the check: nothing that comes after it is missed
            timer = None
            try:
                arrived = await self._last_arrivals(queues)
                if any(number != self._seen.get(queue, 0) for queue, number in arrived.items()):
                    self._seen.update(arrived)
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                timer = loop.call_later(min(left, CHECK_EVERY_S), _settle_waiter, waiter, False)
                if await waiter:
                    return True
            finally:
                del self._waiters[waiter]
                if timer is not None:
                    timer.cancel()

    # Listening

    async def _subscribe(self, queues: Sequence[str], timeout: float) -> None:
        new = [queue for queue in queues if queue not in self._subscribed]
        for queue in new:
            self._subscribed[queue] = asyncio.Event()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="taskharbor-hints")
        elif new:
            self._send_subscribe(new)
        events = [self._subscribed[queue] for queue in queues if not self._subscribed[queue].is_set()]
        if events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, SUBSCRIBE_S)):
                    for event in events:
                        await event.wait()

    def _send_subscribe(self, queues: Sequence[str]) -> None:
        if self._listener is not None:
            self._listener.send("SUBSCRIBE", *(f"{{{queue}}}:{self._wake}" for queue in queues))

    async def _keep_listening(self) -> None:
        pause = 0.1
        while True:
            connection = None
            try:
                connection = await self._connect()
                self._listener = PubSubListener(connection, self._receive)
                self._send_subscribe(list(self._subscribed))
                await self._listener.over
            except (RedisError, OSError):
                pass
            finally:
                self._listener = None
                if any(event.is_set() for event in self._subscribed.values()):
                    pause = 0.1
                for event in self._subscribed.values():
                    event.clear()
                if connection is not None:
                    await connection.disconnect()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _receive(self, reply: Any) -> None:
        kind, name, *_ = reply
        queue = name.decode(errors="replace")[1:].removesuffix("}:" + self._wake)
        if kind == b"message":
            for waiter, queues in self._waiters.items():
                if queue in queues:
                    _settle_waiter(waiter, True)
        elif kind == b"subscribe" and queue in self._subscribed:
            self._subscribed[queue].set()

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._subscribed.clear()


def _settle_waiter(waiter: asyncio.Future[bool], result: bool) -> None:
    if not waiter.done():
        waiter.set_result(result)
