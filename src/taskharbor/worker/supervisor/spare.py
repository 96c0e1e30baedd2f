"""The spare: one more process that has imported the application and waits, to take the place of one that dies.

    none ──all slots serve, and there is memory──► waits ──taken by a slot──► serves; the next spare follows
      ▲                                              └──died──► none, for 5, 10, 20 … 600 s
      └── none with --reload, --no-spare, or a store that the supervisor cannot reach

It has opened nothing and reserves nothing. It is started like every other process, never forked: what an
application has at hand after its import (threads, connections, random numbers) cannot be shared by two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from taskharbor.worker.supervisor import memory
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.restart_loop import RestartLoop

FIRST, LONGEST = 5.0, 600.0  # seconds without a spare after one has died
SHORT = 60.0  # seconds until memory is looked at again
ROOM = 2  # times the memory of the largest process must be free, so that a spare takes half of it at most


class Spare:
    """Keeps at most one process waiting. `start` starts one that waits."""

    def __init__(self, start: Callable[[], Awaitable[Process]]) -> None:
        self.process: Process | None = None
        self._start = start
        self._not_before = 0.0
        self._deaths = 0

    async def keep(self, slots: Iterable[RestartLoop], now: float) -> None:
        """Called about every second: start one, if there is none and nothing else has to start first."""
        if self.process is not None or now < self._not_before:
            return
        serving = [slot.process for slot in slots]
        if not all(process is not None and process.ready.is_set() and process.code is None for process in serving):
            return
        size = max(memory.resident(process.pid) for process in serving if process is not None)
        if memory.free() < size * ROOM:
            self._not_before = now + SHORT
            return
        process = await self._start()
        if process.code is None:
            self.process = process
        else:
            self.died(now)

    def take(self) -> Process | None:
        """The process that waits, told to serve; None without one."""
        process = self.give()
        if process is not None:
            process.serve()
        return process

    def give(self) -> Process | None:
        """The process that waits; None without one. One that still imports is ahead all the same."""
        process = self.process
        if process is None or process.code is not None or process.stopped:
            return None
        self.process, self._deaths = None, 0
        return process

    def died(self, now: float) -> None:
        """It has ended by itself, or was killed: perhaps for its memory. Another one is in no hurry."""
        self.process = None
        self._not_before = now + min(LONGEST, FIRST * 2.0**self._deaths)
        self._deaths = min(self._deaths + 1, 16)
