"""Hints that work may have arrived: one subscription for each driver, opened by the first `wait`.

Scripts publish to the channel of a queue whatever may give a reserve more than it found. The subscription mends itself;
while it is away, waiting is looking from time to time. A lost hint costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from taskharbor.drivers.redis.connection import PubSubListener, RespConnection
from taskharbor.drivers.redis.scripts import wake

LOOK_EVERY = 1.0  # seconds
FIRST = 2.0  # seconds for which a wait lets the subscription come up

Look = Callable[[Sequence[str]], Awaitable[dict[str, int]]]


class ArrivalHints:
    """The waiters of one driver."""

    def __init__(self, connect: Callable[[], Awaitable[RespConnection]], look: Look, database: int = 0) -> None:
        self._connect = connect
        self._look = look
        self._wake = wake(database)
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there
        self._waiters: dict[asyncio.Future[bool], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._listener: PubSubListener | None = None
        self._heard: dict[str, asyncio.Event] = {}

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
            self._waiters[waiter] = names  # before the look: nothing that comes after it is missed
            timer = None
            try:
                arrived = await self._look(queues)
                for queue in queues:
                    self._seen.setdefault(queue, 0)
                if any(arrived.get(queue, 0) != self._seen[queue] for queue in queues):
                    self._seen.update(arrived)
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                timer = loop.call_later(min(left, LOOK_EVERY), settle, waiter, False)
                if await waiter:
                    return True
            finally:
                del self._waiters[waiter]
                if timer is not None:
                    timer.cancel()

    # Listening

    async def _subscribe(self, queues: Sequence[str], timeout: float) -> None:
        new = [queue for queue in queues if queue not in self._heard]
        for queue in new:
            self._heard[queue] = asyncio.Event()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="taskharbor-hints")
        elif new:
            self._ask(new)
        events = [self._heard[queue] for queue in queues if not self._heard[queue].is_set()]
        if events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, FIRST)):
                    for event in events:
                        await event.wait()

    def _ask(self, queues: Sequence[str]) -> None:
        if self._listener is not None:
            self._listener.send("SUBSCRIBE", *(f"{{{queue}}}:{self._wake}" for queue in queues))

    async def _keep_listening(self) -> None:
        pause = 0.1
        while True:
            connection = None
            try:
                connection = await self._connect()
                self._listener = PubSubListener(connection, self._hear)
                self._ask(list(self._heard))
                await self._listener.over
            except (RedisError, OSError):
                pass
            finally:
                self._listener = None
                if any(event.is_set() for event in self._heard.values()):
                    pause = 0.1
                for event in self._heard.values():
                    event.clear()
                if connection is not None:
                    await connection.disconnect()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _hear(self, reply: Any) -> None:
        kind, name, *_ = reply
        queue = name.decode(errors="replace")[1:].removesuffix("}:" + self._wake)
        if kind == b"message":
            for waiter, queues in self._waiters.items():
                if queue in queues:
                    settle(waiter, True)
        elif kind == b"subscribe" and queue in self._heard:
            self._heard[queue].set()

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._heard.clear()


def settle(waiter: asyncio.Future[bool], answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)
