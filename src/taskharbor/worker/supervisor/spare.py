"""The spare: one more process that has imported the application and waits, to replace a process that dies.

    none ──all processes serve, and memory is free──► waits ──a process died──► serves; the next spare follows
      ▲                                                 └──died itself──► none, for 5, 10, 20 … 600 s
      └── none with --reload, --no-spare, or a store that the supervisor does not know

It has opened nothing and reserves nothing. It is started like every other process, never forked: two processes cannot
share what an application has after its import (threads, connections, random numbers).

On by default: it shortens the recovery of a killed worker from 0.6–2 s to 0.03–0.1 s (decision 52), and `memory.free`
keeps it from using memory that the workers need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from taskharbor.worker.supervisor import memory
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.restart_loop import RestartLoop

FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 600.0  # without a spare after one has died
MEMORY_CHECK_S = 60.0  # until free memory is checked again
FREE_FACTOR = 2  # times the memory of the largest process must be free, so that a spare takes at most half of it


class Spare:
    """Keeps at most one process waiting. `start` starts one that waits."""

    def __init__(self, start: Callable[[], Awaitable[Process]]) -> None:
        self.process: Process | None = None
        self._start = start
        self._not_before = 0.0
        self._deaths = 0

    async def keep(self, loops: Iterable[RestartLoop], now: float) -> None:
        """Start a spare if there is none and nothing else has to start first. Called about every second."""
        if self.process is not None or now < self._not_before:
            return
        serving = [loop.process for loop in loops]
        if not all(process is not None and process.ready.is_set() and process.code is None for process in serving):
            return
        size = max(memory.resident(process.pid) for process in serving if process is not None)
        if memory.free() < size * FREE_FACTOR:
            self._not_before = now + MEMORY_CHECK_S
            return
        process = await self._start()
        if process.code is None:
            self.process = process
        else:
            self.died(now)

    def take(self) -> Process | None:
        """Let the waiting process serve, and return it; None without one."""
        process = self.give()
        if process is not None:
            process.serve()
        return process

    def give(self) -> Process | None:
        """The waiting process, or one that is still importing: it is ahead of a new one. None without one."""
        process = self.process
        if process is None or process.code is not None or process.stopped:
            return None
        self.process, self._deaths = None, 0
        return process

    def died(self, now: float) -> None:
        """The spare has exited or was killed, perhaps for its memory: wait before another one."""
        self.process = None
        self._not_before = now + min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0**self._deaths)
        self._deaths = min(self._deaths + 1, 16)
