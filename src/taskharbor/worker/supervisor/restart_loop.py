"""The restart loop: keeps one worker process running, and starts another one whenever it ends.

start ──► serving ──died──► wait (0, 0.5, 1, 2 … 30 s) ──► start
             │ tired (--max-jobs, --max-memory): the next one starts, and when it serves this one retires
             └ asked to restart (--reload): stop in a hurry, then start at once
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from taskharbor.model.clock import Clock
from taskharbor.model.events import Observers
from taskharbor.model.process_events import ProcessDied, ProcessEnded, ProcessReplaced
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.waiting import first_of

STEADY_S = 10.0  # of service, after which a death counts as the first again
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0


class RestartLoop:
    """Keeps one process running until `close`. `number`: which of the supervisor's processes it is."""

    def __init__(
        self, number: int, clock: Clock, start: Callable[[int], Awaitable[Process]], observers: Observers
    ) -> None:
        self.number = number
        self.process: Process | None = None
        self.restarts = -1
        self.polled_at: float | None = None
        self._clock = clock
        self._start = start
        self._observers = observers
        self._closed = asyncio.Event()
        self._restart = asyncio.Event()
        self._deaths = 0
        self.waits_for_change = False  # with --reload: it cannot start before a source has changed

    def close(self) -> None:
        """Start no more processes."""
        self._closed.set()

    def restart(self) -> None:
        """The program has changed: end the process that serves, and start another at once."""
        self._deaths = 0
        self._restart.set()
        if self.process is not None:
            self.process.stop(hurry=True)

    async def run(self) -> None:
        """Run until it is closed."""
        process = await self._next()
        while not self._closed.is_set():
            await self._first_of(process.gone.wait(), process.tired.wait())
            if process.gone.is_set():
                await self._rest(process)
                if not self._closed.is_set():
                    process = await self._next()
            elif process.tired.is_set():
                process = await self._replace(process)

    async def _next(self) -> Process:
        self._restart.clear()
        self.restarts += 1
        self.process = await self._start(self.number)
        return self.process

    async def _replace(self, old: Process) -> Process:
        """Start another process; the old one serves until the new one does."""
        new = await self._start(self.number)
        await self._first_of(new.ready.wait(), new.gone.wait(), old.gone.wait())
        if not new.ready.is_set() and not old.gone.is_set():
            if not self._closed.is_set():
                self._deaths += 1
                await self._first_of(asyncio.sleep(self._pause()), old.gone.wait())
            return old
        self.process = new
        self.restarts += 1
        if old.gone.is_set():
            self._report_end(old, 0.0)
        elif old.state == "running":
            self._observers.emit(ProcessReplaced(old.pid, self.number, old.why))
            old.retire()
        return new

    async def _rest(self, process: Process) -> None:
        """Report the end of a process, and wait before the next start."""
        if self._closed.is_set():
            return
        if self.waits_for_change:
            await self._first_of(self._restart.wait())
        elif process.told_to_end or process.done:
            self._report_end(process, 0.0)
        else:
            # One that never served may have taken long to fail, in its lifespan for example: that is not steady.
            if process.ready.is_set() and self._clock.monotonic() - process.started_at > STEADY_S:
                self._deaths = 0
            seconds = self._pause()
            self._deaths += 1
            self._report_end(process, seconds)
            await self._first_of(asyncio.sleep(seconds), self._restart.wait())

    def _report_end(self, process: Process, seconds: float) -> None:
        if not process.pid:
            return  # ProcessNotStarted was emitted
        if process.told_to_end:
            self._observers.emit(ProcessEnded(process.pid, self.number, process.cause))
        elif process.done:
            self._observers.emit(ProcessReplaced(process.pid, self.number, process.why))
        else:
            self._observers.emit(ProcessDied(process.pid, self.number, process.cause, round(seconds, 1)))

    def _pause(self) -> float:
        if self._deaths == 0:
            return 0.0
        seconds: float = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._deaths - 1, 16))
        return seconds * (1 + random.random() / 4)

    async def _first_of(self, *waiters: Awaitable[object]) -> None:
        """Wait for the first of these, or for `close`."""
        await first_of(*waiters, self._closed.wait())
