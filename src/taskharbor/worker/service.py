"""The one start/stop skeleton of the worker's services.

    new ──start──► running ──stop──► stopped          `run` returning by itself also ends in stopped

A service is a loop in a task of its own. `stop` asks (`stopping`), and waits until the loop has ended by itself;
it never cancels, because a cancelled storage call leaves its outcome in doubt. `end` does the same for a worker that
has to end, whether or not its store answers: there the wait has a limit. A loop that raises keeps its exception for
whoever waits for it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from taskharbor.worker.stop_budget import StopBudget


class Service(ABC):
    """Something that runs from `start` to `stop`."""

    def __init__(self) -> None:
        self.stopping = False
        self._over: asyncio.Future[None] | None = None  # what a rest ends with
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self) -> None:
        """The loop. Return soon after `stopping` has become true."""

    def start(self) -> None:
        """Begin. Starting twice is a mistake of the caller."""
        if self._task is not None:
            raise RuntimeError(f"{type(self).__name__} was started already")
        self._task = asyncio.create_task(self.run(), name=f"taskharbor-{type(self).__name__.lower()}")

    def ask_to_stop(self) -> None:
        """Tell the loop to end; `stop` waits for it."""
        self.stopping = True
        self.wake()

    def wake(self) -> None:
        """End its rest, if it rests."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def stop(self) -> None:
        """Ask, and wait for the end. Safe to call again, and before `start`. What the loop raised stays in `task`."""
        self.ask_to_stop()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def end(self, budget: StopBudget, share: float = 1.0) -> bool:
        """Ask, and wait as long as the budget lasts: then it is cancelled. Whether it has ended by itself."""
        self.ask_to_stop()
        return await budget.ended_or_cancelled(self.task, share)

    @property
    def task(self) -> asyncio.Task[None]:
        """The task of the loop, for who waits for its end."""
        if self._task is None:
            raise RuntimeError(f"{type(self).__name__} was not started")
        return self._task

    async def rest(self, *waiters: asyncio.Future[Any]) -> None:
        """Wait for the first of these or for the wish to stop; what is unfinished then is cancelled."""
        over = self._over = asyncio.get_running_loop().create_future()

        def end(waiter: asyncio.Future[Any]) -> None:
            if not waiter.cancelled():
                waiter.exception()  # looked at: whoever rests does not care how it ended
            if not over.done():
                over.set_result(None)

        for waiter in waiters:
            waiter.add_done_callback(end)
        try:
            if not self.stopping:
                await over
        finally:
            self._over = None
            unfinished = [waiter for waiter in waiters if not waiter.done()]
            for waiter in unfinished:
                waiter.cancel()
            if unfinished:
                await asyncio.gather(*unfinished, return_exceptions=True)
