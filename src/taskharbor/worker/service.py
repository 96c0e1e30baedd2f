"""The one start/stop skeleton of the worker's services.

    new ──start──► running ──stop──► stopped          `run` returning by itself also ends in stopped

A service is a loop in a task of its own. `stop` asks (`stopping`), and waits until the loop has ended by itself;
it never cancels, because a cancelled storage call leaves its outcome in doubt. A loop that raises keeps its
exception for whoever waits for it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any


class Service(ABC):
    """Something that runs from `start` to `stop`."""

    def __init__(self) -> None:
        self.stopping = False
        self._asked = asyncio.Event()
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
        self._asked.set()

    async def stop(self) -> None:
        """Ask, and wait for the end. Safe to call again, and before `start`. What the loop raised stays in `task`."""
        self.ask_to_stop()
        if self._task is not None:
            await asyncio.wait((self._task,))

    @property
    def task(self) -> asyncio.Task[None]:
        """The task of the loop, for who waits for its end."""
        if self._task is None:
            raise RuntimeError(f"{type(self).__name__} was not started")
        return self._task

    async def rest(self, *waiters: asyncio.Future[Any]) -> None:
        """Wait for the first of these or for the wish to stop; what is unfinished then is cancelled."""
        everything = (*waiters, asyncio.ensure_future(self._asked.wait()))
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in everything:
                waiter.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
