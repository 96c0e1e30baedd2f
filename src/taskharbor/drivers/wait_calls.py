"""Calls of `wait` in this process, across threads and event loops: for stores that can number their arrivals.

An arrival is anything that may give a reserve more than before: a job that becomes due, capacity of a group that is
freed, a queue that is resumed. The store numbers them, and a call ends when a queue has one after the last that its
driver has seen. The calls cost the others nothing while there is none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping


class WaitCall:
    """One call of `wait`. `seen`: for each of its queues the last arrival that it need not be woken for."""

    __slots__ = ("future", "loop", "seen")

    def __init__(self, seen: dict[str, int]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[bool] = self.loop.create_future()
        self.seen = seen

    def finish(self, has_work: bool) -> None:
        """Let `wait` return. To be called on the event loop that it waits on."""
        if not self.future.done():
            self.future.set_result(has_work)

    def concerns(self, arrivals: Mapping[str, int]) -> bool:
        """Whether anything arrived that its driver has not seen."""
        return any(arrivals.get(name, 0) > number for name, number in self.seen.items())


class WaitCalls:
    """The calls of `wait` on a store."""

    def __init__(self) -> None:
        self._calls: dict[WaitCall, None] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: WaitCall) -> None:
        with self._guard:
            self._calls[call] = None

    def remove(self, call: WaitCall) -> None:
        with self._guard:
            self._calls.pop(call, None)

    def queues(self) -> list[str]:
        """The queues that any call waits for."""
        with self._guard:
            return list({name for call in self._calls for name in call.seen})

    def wake(self, arrivals: Mapping[str, int]) -> None:
        """Something arrived: end the calls that it concerns. `arrivals`: queue → the number of its last arrival."""
        if not self._calls:
            return
        with self._guard:
            woken = [call for call in self._calls if call.concerns(arrivals)]
            for call in woken:
                del self._calls[call]
        for call in woken:
            try:
                call.loop.call_soon_threadsafe(call.finish, True)
            except RuntimeError:
                pass  # its loop was closed without cancelling it: no coroutine waits any more
