"""Hints that work may have arrived: one subscription for each driver, opened by the first `wait`.

Scripts publish to the channel of a queue whenever a reserve may find more than before: the number of the last arrival,
and how many jobs there are more. All idle drivers hear it. Those that claim one of these jobs first end their wait, the
others go on waiting: so a job wakes one worker, not all. A driver that won its last claims does not wait for the reply.

Once a second a driver that waits looks for itself: for jobs of clients that send no hints, for what falls due, and for
jobs whose hint was lost or whose claimant died. A lost hint costs latency, never a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis.exceptions import RedisError

from taskharbor.drivers.redis.connection import PubSubListener, RespConnection
from taskharbor.drivers.redis.scripts import wake
from taskharbor.model.errors import BackendUnavailable, DriverError, TaskHarborError

LOOK_EVERY_S = 1.0
SUBSCRIBE_S = 2.0  # for which a wait lets the subscription come up
CLAIM_MS = 2000  # for which a claim is kept
MAX_CLAIMED = 50  # a hint of more jobs wakes all
MAX_TRIES = 3  # claims for one hint
SURE_WINS = 20  # claims won in a row, after which there seem to be no others

LastArrivals = Callable[[Sequence[str]], Awaitable[dict[str, int]]]
Claim = Callable[[str, str], Awaitable[bool]]
Poll = Callable[[Sequence[str]], Awaitable[float | None]]


class ArrivalHints:
    """The waiters of one driver. `claim`: store the name of a claim in a queue, unless it is there; `poll`: in how many
    seconds a reserve may find something, 0 or less for now, None for never."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[RespConnection]],
        last_arrivals: LastArrivals,
        claim: Claim,
        poll: Poll,
        database: int = 0,
    ) -> None:
        self._connect = connect
        self._last_arrivals = last_arrivals
        self._claim = claim
        self._poll = poll
        self._wake = wake(database)
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there
        self._waiters: dict[asyncio.Future[bool], frozenset[str]] = {}
        self._task: asyncio.Task[None] | None = None
        self._claiming: set[asyncio.Task[None]] = set()
        self._wins = 0  # in a row
        self._listener: PubSubListener | None = None
        self._subscribed: dict[str, asyncio.Event] = {}

    def is_listening(self) -> bool:
        """Whether hints of all queues that were waited for arrive."""
        events = self._subscribed.values()
        return self._listener is not None and bool(events) and all(event.is_set() for event in events)

    def drained(self, queue: str, arrival: int) -> None:
        """A reserve left nothing in the queue."""
        self._seen[queue] = arrival

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True as soon as work may have arrived, False after `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline, names = loop.time() + timeout, frozenset(queues)
        await self._subscribe(queues, timeout)
        is_first = True
        while True:
            waiter: asyncio.Future[bool] = loop.create_future()
            self._waiters[waiter] = names  # before the look: nothing that comes after it is missed
            timer = None
            try:
                pause = LOOK_EVERY_S
                if is_first:
                    if await self._has_news(queues):
                        return True
                    is_first = False
                elif loop.time() < deadline and (seconds := await self._look_around(queues)) is not None:
                    if seconds <= 0:
                        return True
                    pause = min(pause, seconds)
                if (left := deadline - loop.time()) <= 0:
                    return waiter.done() and waiter.result()
                timer = loop.call_later(min(left, pause), _settle_waiter, waiter, False)
                if await waiter:
                    return True
            finally:
                del self._waiters[waiter]
                if timer is not None:
                    timer.cancel()

    async def _look_around(self, queues: Sequence[str]) -> float | None:
        try:
            return await self._poll(queues)
        except BackendUnavailable:
            raise
        except DriverError:  # a damaged key, which a reserve moves aside
            return 0.0

    # Claims

    async def _has_news(self, queues: Sequence[str]) -> bool:
        """Whether there is an arrival since this driver found nothing that no other driver has claimed."""
        arrived = await self._last_arrivals(queues)
        news = {queue: number for queue, number in arrived.items() if number != self._seen.get(queue, 0)}
        for queue, number in news.items():
            seen = self._seen.get(queue, 0)
            self._seen[queue] = number
            is_few = 0 < number - seen <= MAX_TRIES
            if self._wins >= SURE_WINS or not is_few:
                return True
            for each in range(number, seen, -1):
                if await self._won(queue, f"{each}:0"):
                    return True
        return False

    async def _won(self, queue: str, name: str) -> bool:
        try:
            return await self._claim(queue, name)
        except TaskHarborError:
            return True  # nobody knows, as on a full server: the reserve finds out

    def _hear(self, queue: str, message: bytes) -> None:
        if not any(queue in queues for queues in self._waiters.values()):
            return None  # the next wait sees the number
        number, _, count = message.partition(b" ")
        if not (number.isdigit() and count.isdigit() and 0 < int(count) <= MAX_CLAIMED):
            return self._end_waits(queue)
        task = asyncio.create_task(self._try_claim(queue, int(number), int(count)), name="taskharbor-claim")
        self._claiming.add(task)
        task.add_done_callback(self._claiming.discard)
        return None

    async def _try_claim(self, queue: str, number: int, count: int) -> None:
        if self._wins >= SURE_WINS:
            self._end_waits(queue)
        first = random.randrange(count)
        for place in range(first, first + min(count, MAX_TRIES)):
            if await self._won(queue, f"{number}:{place % count}"):
                self._wins += 1
                return self._end_waits(queue)
        self._wins = 0
        self._seen[queue] = max(self._seen.get(queue, 0), number)
        return None

    def _end_waits(self, queue: str) -> None:
        for waiter, queues in self._waiters.items():
            if queue in queues:
                _settle_waiter(waiter, True)

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
            self._hear(queue, reply[2])
        elif kind == b"subscribe" and queue in self._subscribed:
            self._subscribed[queue].set()

    async def close(self) -> None:
        """Stop listening."""
        task, self._task = self._task, None
        tasks = [*self._claiming, *([] if task is None else [task])]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._subscribed.clear()


def _settle_waiter(waiter: asyncio.Future[bool], result: bool) -> None:
    if not waiter.done():
        waiter.set_result(result)
