"""A sign that something has changed, which costs next to nothing to give many times in one turn of the loop.

An `asyncio.Event` is a call for each job that ends; whoever gives this sign looks at `is_set` first. It belongs to one
loop and one thread.
"""

from __future__ import annotations

import asyncio


class LoopEvent:
    """`is_set` until somebody clears it. Everybody who waits hears of it."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Tell everybody who waits. `if not change.is_set: change.set()` where it matters."""
        if not self.is_set:
            self.is_set = True
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """From now on a wait is for the next one."""
        self.is_set = False

    async def wait(self) -> None:
        """Until it is given; at once if it is."""
        if self.is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
