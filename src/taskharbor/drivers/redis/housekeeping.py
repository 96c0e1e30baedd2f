"""Looking after what others left behind, beside a worker's calls.

That is: jobs that foreign clients finished, messages of clients that died, names of queues that nobody uses any more.

A driver begins with it at its first reserve, so one that only enqueues never does. It is a task of its own: it stands
in front of no call, and what goes wrong is logged, once for each queue and reason. A round is bounded in time and in
what one script does, and queues are visited apart from each other: one that is damaged, or lies on a node that is away,
costs the others nothing. Every worker looks at the queues it serves; whoever comes first looks, and for a while no
other does. Those of all others are one worker's turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from taskharbor.model.errors import BackendUnavailable, TaskHarborError

if TYPE_CHECKING:
    from taskharbor.drivers.redis.commands import StandaloneCommands

logger = logging.getLogger("taskharbor.redis")

T = TypeVar("T")
EVERY = 2.0  # seconds between two rounds
ROUND = 1.0  # seconds of work in a round; what is left has its turn in the next
PACE = 1800  # ms for which a queue that was looked at is left alone by the others
VISIT = 3.0  # seconds for a queue: one on a node that is away is given up
REST = 10.0  # seconds for which it is left alone then
OWN = 32  # queues that a worker serves are visited in a round, at most
AT_ONCE = 8


class Housekeeper:
    """The task of one opened driver."""

    def __init__(self, commands: StandaloneCommands) -> None:
        self._commands = commands
        self._task: asyncio.Task[None] | None = None
        self._now = 0
        self._queues: dict[str, None] = {}  # those that the driver serves, the next to be visited first
        self._resting: dict[str, float] = {}  # queue → until when it is left alone
        self._told: dict[str, str] = {}  # queue → what was logged of it last
        self._first = asyncio.Event()  # a round is over
        self.rounds = 0

    def serve(self, queues: Sequence[str], now: int) -> None:
        """A reserve from these queues, at this moment in ms."""
        self._now = max(self._now, now)
        for queue in queues:
            if queue not in self._queues:
                self._queues[queue] = None
        if self._task is None:
            self._task = asyncio.create_task(self._keep_looking(), name="taskharbor-housekeeping")

    async def first_look(self) -> bool:
        """Wait for the first round, a second at most; False: it was over already. For the first reserve that finds
        nothing: what it would find may lie in an outbox, and a worker that runs until all is done ends then."""
        if self._task is None or self._first.is_set():
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND):
                await self._first.wait()
        self._first.set()
        return True

    async def close(self) -> None:
        """Stop, wherever it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(EVERY)

    async def round(self) -> None:
        """One round: the queues that this driver serves, then those of others if it is this driver's turn."""
        end = asyncio.get_running_loop().time() + ROUND
        own = await self._safely("the queues of this worker", self._next_own()) or []
        await self._visit_all(own, end)
        others = await self._safely("the queues of others", self._commands.strays(PACE)) or []
        await self._visit_all([queue for queue in others if queue not in self._queues], end)
        self.rounds += 1
        self._first.set()

    async def _next_own(self) -> list[str]:
        first = list(self._queues)[:OWN]
        for queue in first:  # the next ones have their turn in the next round
            del self._queues[queue]
            self._queues[queue] = None
        return await self._commands.worth_a_visit(first)

    async def _visit_all(self, queues: Sequence[str], end: float) -> None:
        loop, waiting = asyncio.get_running_loop(), list(queues)

        async def visit_some() -> None:
            while waiting and loop.time() < end:
                queue = waiting.pop(0)
                if self._resting.get(queue, 0.0) <= loop.time():
                    await self._safely(queue, self._visit(queue, end))

        await asyncio.gather(*(visit_some() for _ in range(min(AT_ONCE, len(waiting)))))

    async def _visit(self, queue: str, end: float) -> None:
        pace = PACE if self.rounds else 0  # at first it looks, whoever did: that one may be dead since
        while await self._commands.visit(queue, self._now, pace) and asyncio.get_running_loop().time() < end:
            pace = 0  # there is more to do, and it is ours

    async def _safely(self, what: str, work: Awaitable[T]) -> T | None:
        """Whatever goes wrong is logged, and what it was about is left alone for a while."""
        try:
            async with asyncio.timeout(VISIT):
                answer = await work
        except Exception as error:
            self._resting[what] = asyncio.get_running_loop().time() + REST
            self._tell(what, error)
            return None
        self._resting.pop(what, None)
        if self._told.pop(what, None) is not None:
            logger.info("housekeeping: %s can be looked after again", what)
        return answer

    def _tell(self, what: str, error: Exception) -> None:
        text = str(error) if isinstance(error, TaskHarborError) else type(error).__name__
        if self._told.get(what) != text:
            self._told[what] = text
            level = logging.INFO if isinstance(error, BackendUnavailable | TimeoutError) else logging.WARNING
            logger.log(level, "housekeeping: %s cannot be looked after: %s", what, text)
