"""Handles what others left behind, in the background of a worker's calls.

That is: jobs that foreign clients finished, messages of clients that died, names of queues that are no longer used.

A driver begins with it at its first reserve, so one that only enqueues never does. It is a task of its own. No call
waits for it, except the first reserve that finds nothing (a second at most). An error is logged once for each queue and
reason. A round is bounded in time and in what one script does. Each queue is visited by itself: one that is damaged, or
lies on a node that is away, costs the others nothing. Every worker visits the queues it serves; after a visit no other
worker comes for a while. The queues that no worker serves are visited by one worker at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from taskharbor.drivers.redis.healing import COMPARE_EVERY_S, compare_edges
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.errors import BackendUnavailable, TaskHarborError

logger = logging.getLogger("taskharbor.drivers.redis")

T = TypeVar("T")
ROUND_EVERY_S = 2.0  # between two rounds
ROUND_S = 1.0  # of work in a round; the rest comes in the next
PACE_MS = 1800  # for which no other client looks after a queue that was visited
STRAYS_PACE_MS = 5800  # the same for the queues of others
VISIT_S = 3.0  # for one queue: a visit to a node that is away is given up
REST_S = 10.0  # for which a queue that failed is left alone
MAX_OWN_QUEUES = 32  # of those that a worker serves, in one round
MAX_PARALLEL_VISITS = 8
MAX_WATCHED_JOBS = 200  # checked by one script


async def visit(store: RedisStore, queue: str, now: int, pace_ms: int, compare_every_s: int = COMPARE_EVERY_S) -> bool:
    """Look after a queue, unless another client did in the last `pace_ms`; returns whether there is more to do now."""
    args = ScriptCall(
        "housekeep",
        now=now,
        home=store.router.home_of(queue),
        queue=queue,
        pace_ms=pace_ms,
        watched_count=MAX_WATCHED_JOBS,
        compare_every_s=compare_every_s,
    )
    found = await store.run(args)
    if found is None:
        return False
    more, posted, unnoted, idle, edges = found
    await store.router.visited(queue, posted, unnoted, bool(idle and pace_ms))
    if edges:
        await compare_edges(store, queue, edges, now)
    return bool(more)


class Housekeeper:
    """The task of one opened driver."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._now = 0
        self._queues: dict[str, None] = {}  # those that the driver serves, the next to be visited first
        self._resting: dict[str, float] = {}  # queue → until when it is left alone
        self._logged: dict[str, str] = {}  # queue → what was logged of it last
        self._first = asyncio.Event()  # a round is over
        self.rounds = 0

    def serve(self, queues: Sequence[str], now: int) -> None:
        """A reserve from these queues, at this moment in ms."""
        self._now = max(self._now, now)
        for queue in queues:
            if queue not in self._queues:
                self._queues[queue] = None
        if self._task is None:
            self._task = asyncio.create_task(self._keep_house(), name="taskharbor-housekeeping")

    async def wait_for_first_round(self) -> bool:
        """Wait for the first round, a second at most; False if it was over already. For the first reserve that finds
        nothing: its job may lie in an outbox, and a worker that stops when all is done would stop too early."""
        if self._task is None or self._first.is_set():
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND_S):
                await self._first.wait()
        self._first.set()
        return True

    async def close(self) -> None:
        """Stop, wherever it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_house(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(ROUND_EVERY_S)

    async def round(self) -> None:
        """One round: the queues that this driver serves, then those of others if it is this driver's turn."""
        end = asyncio.get_running_loop().time() + ROUND_S
        own = await self._safely("the queues of this worker", self._next_own()) or []
        await self._visit_all(own, end)
        others = await self._safely("the queues of others", self._store.router.queues_of_others(STRAYS_PACE_MS)) or []
        await self._visit_all([queue for queue in others if queue not in self._queues], end)
        self.rounds += 1
        self._first.set()

    async def _next_own(self) -> list[str]:
        first = list(self._queues)[:MAX_OWN_QUEUES]
        for queue in first:  # the next ones have their turn in the next round
            del self._queues[queue]
            self._queues[queue] = None
        await self._store.router.use_queues(first)
        return await self._store.router.to_visit(first)

    async def _visit_all(self, queues: Sequence[str], end: float) -> None:
        loop, waiting = asyncio.get_running_loop(), list(queues)

        async def visit_some() -> None:
            while waiting and loop.time() < end:
                queue = waiting.pop(0)
                if self._resting.get(queue, 0.0) <= loop.time():
                    await self._safely(queue, self._visit(queue, end))

        await asyncio.gather(*(visit_some() for _ in range(min(MAX_PARALLEL_VISITS, len(waiting)))))

    async def _visit(self, queue: str, end: float) -> None:
        pace = PACE_MS if self.rounds else 0  # the first time in any case: who visited before may be dead
        while await visit(self._store, queue, self._now, pace) and asyncio.get_running_loop().time() < end:
            pace = 0  # there is more to do, and it is ours

    async def _safely(self, what: str, work: Awaitable[T]) -> T | None:
        """Log any error, and leave alone for a while what failed."""
        try:
            async with asyncio.timeout(VISIT_S):
                result = await work
        except Exception as error:
            self._resting[what] = asyncio.get_running_loop().time() + REST_S
            self._log(what, error)
            return None
        self._resting.pop(what, None)
        if self._logged.pop(what, None) is not None:
            logger.info("housekeeping: %s can be looked after again", what)
        return result

    def _log(self, what: str, error: Exception) -> None:
        text = str(error) if isinstance(error, TaskHarborError) else type(error).__name__
        if self._logged.get(what) != text:
            self._logged[what] = text
            level = logging.INFO if isinstance(error, BackendUnavailable | TimeoutError) else logging.WARNING
            logger.log(level, "housekeeping: %s cannot be looked after: %s", what, text)
