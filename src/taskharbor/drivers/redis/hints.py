"""Hints that work may have arrived: one subscription for each driver, opened by the first `wait`.

Scripts publish to the channel of a queue whatever may give a reserve more than it found. The subscription mends itself;
while it is away, waiting is looking from time to time. A lost hint costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

LOOK_EVERY = 1.0  # seconds
FIRST = 2.0  # seconds for which a wait lets the subscription come up
CANCEL_AGAIN = 0.05  # seconds

Look = Callable[[Sequence[str]], Awaitable[dict[str, int]]]


class Hints:
    """The waiters of one driver."""

    def __init__(self, connect: Callable[[], Awaitable[AbstractConnection]], look: Look) -> None:
        self._connect = connect
        self._look = look
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there
        self._waiters: dict[asyncio.Future[None], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._asked: set[str] = set()
        self._heard: dict[str, asyncio.Event] = {}

    def drained(self, queue: str, arrival: int) -> None:
        """A reserve left nothing in the queue."""
        self._seen[queue] = arrival

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters[waiter] = frozenset(queues)
        try:
            await self._subscribe(queues, timeout)
            while True:
                arrived = await self._look(queues)
                for queue in queues:
                    self._seen.setdefault(queue, 0)
                if any(arrived.get(queue, 0) != self._seen[queue] for queue in queues):
                    self._seen.update(arrived)
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                done, _ = await asyncio.wait([waiter], timeout=min(left, LOOK_EVERY))
                if done:
                    return True
        finally:
            self._waiters.pop(waiter, None)
            waiter.cancel()

    # Listening

    async def _subscribe(self, queues: Sequence[str], timeout: float) -> None:
        new = [queue for queue in queues if queue not in self._heard]
        for queue in new:
            self._heard[queue] = asyncio.Event()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_listening(), name="taskharbor-hints")
        elif new:
            await self._ask(new)
        events = [self._heard[queue] for queue in queues if not self._heard[queue].is_set()]
        if events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, FIRST)):
                    for event in events:
                        await event.wait()

    async def _ask(self, queues: Sequence[str]) -> None:
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(RedisError, OSError):
                await connection.send_command("SUBSCRIBE", *(channel(queue) for queue in queues), check_health=False)

    async def _keep_listening(self) -> None:
        pause = 0.1
        while True:
            connection = None
            try:
                connection = await self._connect()
                self._connection = connection
                await self._ask(list(self._heard))
                while True:
                    kind, name, *_ = await connection.read_response(disable_decoding=True, timeout=float("inf"))
                    queue = queue_of(name)
                    if kind == b"message":
                        self._wake(queue)
                    elif kind == b"subscribe" and queue in self._heard:
                        pause = 0.1
                        self._heard[queue].set()
            except (RedisError, OSError, ValueError, TypeError):
                pass
            finally:
                self._connection = None
                for event in self._heard.values():
                    event.clear()
                if connection is not None:
                    await connection.disconnect(nowait=True)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    def _wake(self, queue: str) -> None:
        for waiter, queues in self._waiters.items():
            if queue in queues and not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        if task is not None:
            while not task.done():
                task.cancel()  # again: a connection that is just made may swallow one (asyncio.wait_for before 3.12)
                await asyncio.wait([task], timeout=CANCEL_AGAIN)
            await asyncio.gather(task, return_exceptions=True)
        self._heard.clear()


def channel(queue: str) -> str:
    return f"{{{queue}}}:th:wake"


def queue_of(name: bytes) -> str:
    return name.decode(errors="replace")[1:].removesuffix("}:th:wake")
