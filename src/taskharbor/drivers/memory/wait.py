"""Calls of `wait`, across threads and event loops. They cost the other calls nothing while there is none.

A call is woken when one of its queues counts an arrival after the call began. `JobQueue.arrived` is written by all that
may give a reserve more than before: a job that becomes due, capacity of a group that is freed, a queue that is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskharbor.drivers.memory.queue import JobQueue


class MemoryWait:
    """One call of `wait`. `since`: the number of the last arrival that it need not be woken for."""

    __slots__ = ("future", "loop", "queues", "since")

    def __init__(self, queues: Sequence[str], since: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()
        self.queues = tuple(queues)
        self.since = since

    def end(self, arrived: bool) -> None:
        """Let `wait` return. To be called on the event loop that it waits on."""
        if not self.future.done():
            self.future.set_result(arrived)

    def has_arrivals(self, queues: dict[str, JobQueue]) -> bool:
        return any(name in queues and queues[name].arrived > self.since for name in self.queues)


class MemoryWaits:
    """The calls of `wait` on a store; used under its lock."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[MemoryWait, None] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: MemoryWait) -> None:
        self._calls[call] = None

    def remove(self, call: MemoryWait) -> None:
        self._calls.pop(call, None)

    def wake(self, queues: dict[str, JobQueue]) -> None:
        """End the calls for which something has arrived."""
        for call in [call for call in self._calls if call.has_arrivals(queues)]:
            del self._calls[call]
            try:
                call.loop.call_soon_threadsafe(call.end, True)
            except RuntimeError:
                pass  # its loop was closed without cancelling it: nothing waits any more
