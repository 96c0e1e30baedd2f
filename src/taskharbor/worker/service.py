"""How every service of a worker starts and stops.

    new ──start──► running ──stop──► stopped          `run` returning by itself also ends in stopped

A service is a loop in a task of its own. `stop` sets `stopping`, and waits until the loop has ended by itself; it never
cancels, because a cancelled storage call leaves its outcome in doubt. `end` does the same for a worker that has to end
even if its store does not answer: there the wait has a limit. What a loop raises stays in its task.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any

from taskharbor.worker.waiting import StopBudget, hidden


class Service(ABC):
    """Something that runs from `start` to `stop`."""

    def __init__(self) -> None:
        self.stopping = False
        self._over: asyncio.Future[None] | None = None  # ends the current `rest`
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def run(self) -> None:
        """The loop. Return soon after `stopping` has become true."""

    def start(self) -> None:
        """Start the loop. Starting twice is a RuntimeError."""
        if self._task is not None:
            raise RuntimeError(f"{type(self).__name__} was started already")
        self._task = hidden(asyncio.create_task(self.run(), name=f"taskharbor-{type(self).__name__.lower()}"))

    def ask_to_stop(self) -> None:
        """Tell the loop to end, without waiting for it."""
        self.stopping = True
        self.wake()

    def wake(self) -> None:
        """End the current `rest`, if there is one."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def stop(self) -> None:
        """Tell the loop to end, and wait for that. Safe to call twice, and before `start`."""
        self.ask_to_stop()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def end(self, budget: StopBudget, share: float = 1.0) -> bool:
        """Tell the loop to end, wait as long as the budget lasts, then cancel. Return whether it ended by itself."""
        self.ask_to_stop()
        return await budget.ended_or_cancelled(self.task, share)

    @property
    def task(self) -> asyncio.Task[None]:
        """The task of the loop."""
        if self._task is None:
            raise RuntimeError(f"{type(self).__name__} was not started")
        return self._task

    async def rest(self, *waiters: Awaitable[Any]) -> None:
        """Wait for the first of these, for `wake` or for a stop; then cancel what is unfinished."""
        over = self._over = asyncio.get_running_loop().create_future()
        tasks = [asyncio.ensure_future(each) for each in waiters]

        def end(task: asyncio.Future[Any]) -> None:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not report it: how it ended does not matter here
            if not over.done():
                over.set_result(None)

        for task in tasks:
            task.add_done_callback(end)
        try:
            if not self.stopping:
                await over
        finally:
            self._over = None
            unfinished = [task for task in tasks if not task.done()]
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.gather(*unfinished, return_exceptions=True)
