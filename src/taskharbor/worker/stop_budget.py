"""How long a worker that stops waits for the store, and what it does with what does not end.

    handlers have ended, or were given back ──► 8 s for the store ──► whatever still waits for it is cancelled
                                     a second signal, `hurry` ──► 3 s

A store that stands still answers no call, so nothing of a stop may wait for an answer without a limit. What is given
up this way is safe: a job whose outcome was not stored runs again when its lease is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from taskharbor.drivers.contract import Driver

logger = logging.getLogger("taskharbor.worker")

STORE = 8.0  # seconds for all calls to the store that a stop makes, once no handler is waited for
HURRIED = 3.0  # the same after a second signal
CANCELLED = 0.5  # seconds that something cancelled may take to end
CLOSING = 2.0  # seconds in which a driver must have closed


class StopBudget:
    """What is left of the time for the store, from the first wait on. `hurry` shortens it."""

    def __init__(self, hurry: asyncio.Event) -> None:
        self._hurry = hurry
        self._clock = asyncio.get_running_loop().time
        self._end: float | None = None
        self._hurried = False

    async def ended(self, task: asyncio.Future[Any], share: float = 1.0) -> bool:
        """Whether it has ended in time, or in its `share` of what is left."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        until = self._until(share)
        try:
            # Compared with a moment, not with what is left of a span: a span that is subtracted from again and again
            # leaves a rest so small that the clock, added to it, stays where it is.
            while not task.done() and self._clock() < until:
                waits = (task,) if self._hurried else (task, hurry)
                await asyncio.wait(waits, timeout=until - self._clock(), return_when=asyncio.FIRST_COMPLETED)
                if self._hurry.is_set() and not self._hurried:
                    until = min(until, self._until(share))
        finally:
            hurry.cancel()
        return task.done()

    async def ended_or_cancelled(self, task: asyncio.Future[Any], share: float = 1.0) -> bool:
        """The same; what has not ended is cancelled, and left behind if it does not end then either."""
        return await self.ended(task, share) or await cancelled(task)

    def _until(self, share: float) -> float:
        """The moment at which a share of what is left, from now on, is used up."""
        now = self._clock()
        if self._end is None:
            self._end = now + STORE
        if self._hurry.is_set() and not self._hurried:
            self._hurried = True
            self._end = min(self._end, now + HURRIED)
        return now + share * (self._end - now)


async def cancelled(task: asyncio.Future[Any]) -> bool:
    """Cancel it, and give it a moment to end. Always False: it did not end by itself."""
    task.cancel()
    await asyncio.wait((task,), timeout=CANCELLED)
    return False


async def close(driver: Driver) -> None:
    """Close it, but wait no longer than is sensible for one whose store stands still."""
    closing = asyncio.ensure_future(driver.close())
    await asyncio.wait((closing,), timeout=CLOSING)
    if closing.done():
        await closing
    else:
        await cancelled(closing)


def leave_behind(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Let nobody wait for these: `asyncio.run` would wait for ever for a coroutine that swallows its cancellation."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was reported: no complaint when collected
        asyncio._unregister_task(task)  # the interface for those who extend asyncio


async def end_others() -> None:
    """Cancel every other task of this loop, as `asyncio.run` does, but do not wait for ever for one that goes on."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if not others:
        return
    for task in others:
        task.cancel()
    _, late = await asyncio.wait(others, timeout=CANCELLED)
    for task in late:
        logger.warning("task %r goes on although it was cancelled: it is left behind", task.get_name())
    leave_behind(late)
