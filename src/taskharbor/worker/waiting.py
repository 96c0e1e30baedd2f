"""Waiting for one of several things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


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
