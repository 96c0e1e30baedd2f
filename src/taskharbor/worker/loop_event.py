"""An event like `asyncio.Event`, for one loop and one thread, that costs nothing to set again.

`is_set` is an attribute, so a caller that ends many jobs in one turn of the loop checks it before it calls `set`.
"""

from __future__ import annotations

import asyncio


class LoopEvent:
    """Set until it is cleared. All waiters wake up."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake all waiters. On a hot path: `if not event.is_set: event.set()`."""
        if not self.is_set:
            self.is_set = True
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Make the next `wait` wait again."""
        self.is_set = False

    async def wait(self) -> None:
        """Return when it is set; at once if it is."""
        if self.is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
