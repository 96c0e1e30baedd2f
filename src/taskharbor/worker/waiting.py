"""Waiting for one of several things; and how long a stopping worker waits for the store, whose calls may not end.

    handlers have ended, or were given back ──► 8 s for the store ──► what still waits for it is cancelled
                                     a second signal, `hurry` ──► 3 s

A store that hangs answers no call, so no step of a stop may wait for it without a limit. Giving up is safe: a job whose
outcome was not stored runs again when its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Any

from taskharbor.drivers.base import Driver

logger = logging.getLogger("taskharbor.worker")

STORE_S = 8.0  # for all calls to the store that a stop makes, once no handler is waited for
HURRIED_S = 3.0  # the same after a second signal
CANCEL_S = 0.5  # for something cancelled to end
HINTED_S = 30.0  # between two looks of an idle worker whose driver is hinted
CLOSE_S = 2.0  # for a driver to close


async def first_of(*waiters: Awaitable[Any]) -> None:
    """Wait for the first of these, then cancel the coroutines among them. Futures and tasks go on."""
    tasks = [asyncio.ensure_future(each) for each in waiters]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:  # not awaited: this may be a coroutine that is thrown away with its loop
        for task, each in zip(tasks, waiters, strict=True):
            if task is not each:
                task.cancel()


async def set_within(seconds: float, event: asyncio.Event) -> bool:
    """Whether an event is set before the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class StopBudget:
    """The time for the store, counted from the first wait. `hurry` shortens it."""

    def __init__(self, hurry: asyncio.Event) -> None:
        self._hurry = hurry
        self._clock = asyncio.get_running_loop().time
        self._end: float | None = None
        self._hurried = False

    async def ended(self, task: asyncio.Future[Any], share: float = 1.0) -> bool:
        """Wait for a task, for at most `share` of the time that is left; return whether it has ended."""
        hurry = asyncio.ensure_future(self._hurry.wait())
        until = self._until(share)
        try:
            # Compared with a point in time. Subtracting from a span again and again leaves a rest so small that
            # adding it to the clock changes nothing, and the loop would not end.
            while not task.done() and self._clock() < until:
                waits = (task,) if self._hurried else (task, hurry)
                await asyncio.wait(waits, timeout=until - self._clock(), return_when=asyncio.FIRST_COMPLETED)
                if self._hurry.is_set() and not self._hurried:
                    until = min(until, self._until(share))
        finally:
            hurry.cancel()
        return task.done()

    async def ended_or_cancelled(self, task: asyncio.Future[Any], share: float = 1.0) -> bool:
        """The same; a task that has not ended is cancelled, and left behind if it still does not end."""
        return await self.ended(task, share) or await cancelled(task)

    def _until(self, share: float) -> float:
        """When a share of the time that is left is used up, counted from now."""
        now = self._clock()
        if self._end is None:
            self._end = now + STORE_S
        if self._hurry.is_set() and not self._hurried:
            self._hurried = True
            self._end = min(self._end, now + HURRIED_S)
        return now + share * (self._end - now)


async def cancelled(task: asyncio.Future[Any]) -> bool:
    """Cancel a task and give it a moment to end. Always False: it did not end by itself."""
    task.cancel()
    await asyncio.wait((task,), timeout=CANCEL_S)
    return False


async def close(driver: Driver) -> None:
    """Close a driver, but do not wait long for one whose store hangs."""
    closing = asyncio.ensure_future(driver.close())
    await asyncio.wait((closing,), timeout=CLOSE_S)
    if closing.done():
        await closing
    else:
        await cancelled(closing)


def leave_behind(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Make asyncio forget these tasks: `asyncio.run` would wait for ever for one that swallows its cancellation."""
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # they were reported: no second warning when collected
        asyncio._unregister_task(task)  # asyncio's interface for its extensions


def hidden(task: asyncio.Task[Any]) -> asyncio.Task[Any]:
    """Keep a task of the worker out of `asyncio.all_tasks()`: a handler that cancels all of those, as programs do that
    end a loop, would otherwise end its worker."""
    asyncio._unregister_task(task)
    return task


async def end_others() -> None:
    """Cancel every other task of this loop, as `asyncio.run` does, but leave behind those that go on."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if not others:
        return
    for task in others:
        task.cancel()
    _, late = await asyncio.wait(others, timeout=CANCEL_S)
    for task in late:
        logger.warning("task %r goes on although it was cancelled: it is left behind", task.get_name())
    leave_behind(late)
