"""Who waits for work: across threads and event loops, and free of charge while nobody does.

A waiter is woken when one of its queues counts an arrival after its mark. `Queue.arrived` is written by whatever may
give a reserve more than it found before: a job that joins the line, a slot that is freed, a queue that is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskharbor.drivers.memory.queue import Queue


class Waiter:
    """One call of `wait`."""

    __slots__ = ("future", "loop", "mark", "queues")

    def __init__(self, queues: Sequence[str], mark: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()
        self.queues = tuple(queues)
        self.mark = mark

    def answer(self, value: bool) -> None:
        """On the waiter's own loop only."""
        if not self.future.done():
            self.future.set_result(value)


class Waiters:
    """The waiters of a store; used under its lock."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def wake(self, queues: dict[str, Queue]) -> None:
        """Wake those for whom something has arrived."""
        for waiter in [waiter for waiter in self._waiting if arrived(queues, waiter)]:
            del self._waiting[waiter]
            try:
                waiter.loop.call_soon_threadsafe(waiter.answer, True)
            except RuntimeError:
                pass  # its loop was closed without cancelling it: nobody is waiting any more


def arrived(queues: dict[str, Queue], waiter: Waiter) -> bool:
    return any(name in queues and queues[name].arrived > waiter.mark for name in waiter.queues)
