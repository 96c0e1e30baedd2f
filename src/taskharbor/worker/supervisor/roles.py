"""The roles of a supervisor's processes: those that serve, the spare, those that run suspects, and the one that stores
the schedules of the application.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from taskharbor.model.clock import Clock
from taskharbor.model.events import Observers
from taskharbor.model.process_events import ProcessDied, ProcessEnded, ProcessReplaced, SuspectDied, SuspectStarted
from taskharbor.worker.supervisor import memory, messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import Process, held_lease
from taskharbor.worker.waiting import first_of

STEADY_S = 10.0  # of service, after which a death counts as the first again
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0  # before a process that cannot start is started again
CRASHES_A_MINUTE = 20  # of processes that ran jobs, each replaced at once; after more of them there are pauses as well
SPARE_FIRST_PAUSE_S, SPARE_MAX_PAUSE_S = 5.0, 600.0  # without a spare after one has died
MEMORY_CHECK_S = 60.0  # until free memory is checked again
FREE_FACTOR = 2  # times the memory of the largest process must be free, so that a spare takes at most half of it
RETURN_DELAY_S = 1.0  # of a suspect that is given back; plus up to as much again


class RestartLoop:
    """Keeps one process running until `close`, and starts another one whenever it ends.

    start ──► serving ──died, and had taken jobs──► start at once; from the 21st time in a minute on, wait as below
     └─────died──┴──died before it took one──► wait (0, 0.5, 1, 2 … 30 s) ──► start
                 │ tired (--max-jobs, --max-memory): the next one starts, and when it serves this one retires
                 └ asked to restart (--reload): stop in a hurry, then start at once

    `number`: which of the supervisor's processes it is.
    """

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
        self._deaths = 0  # one after the other, of processes that took no job
        self._crashes: deque[float] = deque()  # when processes died that had taken jobs, in the last minute
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
                await self._first_of(asyncio.sleep(_pause(self._deaths)), old.gone.wait())
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
        elif process.is_asked_to_end or process.done:
            self._report_end(process, 0.0)
        else:
            seconds = self._pause_after(process)
            self._report_end(process, seconds)
            await self._first_of(asyncio.sleep(seconds), self._restart.wait())

    def _pause_after(self, process: Process) -> float:
        """How long to wait before another process starts. One that took jobs has died of a job: the next can serve."""
        now = self._clock.monotonic()
        # One that never served may have taken long to fail, in its lifespan for example: that is not steady.
        if process.taken or (process.ready.is_set() and now - process.started_at > STEADY_S):
            self._deaths = 0
        if not process.taken:
            self._deaths += 1
            return _pause(self._deaths - 1)
        while self._crashes and now - self._crashes[0] > 60:
            self._crashes.popleft()
        self._crashes.append(now)
        return _pause(len(self._crashes) - CRASHES_A_MINUTE)

    def _report_end(self, process: Process, seconds: float) -> None:
        if not process.pid:
            return  # ProcessNotStarted was emitted
        if process.is_asked_to_end:
            self._observers.emit(ProcessEnded(process.pid, self.number, process.cause))
        elif process.done:
            self._observers.emit(ProcessReplaced(process.pid, self.number, process.why))
        else:
            self._observers.emit(ProcessDied(process.pid, self.number, process.cause, round(seconds, 1)))

    async def _first_of(self, *waiters: Awaitable[object]) -> None:
        """Wait for the first of these, or for `close`."""
        await first_of(*waiters, self._closed.wait())


def _pause(deaths: int) -> float:
    """The pause after this number of deaths; up to a quarter longer, so that slots do not start in step."""
    if deaths <= 0:
        return 0.0
    seconds: float = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(deaths - 1, 16))
    return seconds * (1 + random.random() / 4)


class Spare:
    """Keeps at most one process waiting. `start` starts one that waits.

    none ──all processes serve, and memory is free──► waits ──a process died──► serves; the next spare follows
      ▲                                                 └──died itself──► none, for 5, 10, 20 … 600 s
      └── none with --reload, --no-spare, or a store that the supervisor does not know

    It has opened nothing and reserves nothing. It is started like every other process, never forked: two processes
    cannot share what an application has after its import (threads, connections, random numbers).

    On by default: it shortens the recovery of a killed worker from 0.6–2 s to 0.03–0.1 s (decision 52), and
    `memory.free` keeps it from using memory that the workers need.
    """

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
        self._not_before = now + min(SPARE_MAX_PAUSE_S, SPARE_FIRST_PAUSE_S * 2.0**self._deaths)
        self._deaths = min(self._deaths + 1, 16)


class SuspectJob(msgspec.Struct, eq=False):
    """One job, the process that took it, and the one that runs it, once that is known."""

    taken: messages.TakenLease
    taker: Process
    runner: Process | None = None


class Suspects:
    """Jobs that were lost twice. Each runs in a process of its own, so that no other job waits or dies with it.

    a worker hands one on ──► the spare, or a new process, runs it and ends ──► it died: that job took it down
                         └──► too many suspects already: given back for a moment

    In the store the lease stays that of the worker that took it. Until the process has reported the lease as taken,
    nothing is counted against the job, whatever happens to the process.

    At most `max_processes` run at once. `start` starts a process that waits for its order.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[Process]],
        heart: Callable[[], FleetHeart | None],
        max_processes: int,
        observers: Observers,
    ) -> None:
        self._start = start
        self._heart = heart
        self._max_processes = max_processes
        self._observers = observers
        self._all: list[SuspectJob] = []

    def __contains__(self, process: Process) -> bool:
        return self._run_by(process) is not None

    def tokens(self, worker: str) -> list[str]:
        """The tokens of leases that a worker took and another process holds, or is about to hold."""
        return [each.taken.lease.token for each in self._all if each.taker.worker == worker]

    async def take(self, taker: Process, taken: messages.TakenLease, *, ending: bool) -> None:
        """Run a job that a worker has handed on, or give it back."""
        suspect = SuspectJob(taken, taker)
        self._all.append(suspect)  # before anything else: its taker may die at any moment
        runner = None if ending or len(self._all) > self._max_processes else await self._start()
        if runner is None or runner.code is not None:  # too many, or the system could not start a process
            await self._give_back(suspect)
        else:
            suspect.runner = runner
            runner.number = taker.number
            runner.leases[taken.lease.token] = held_lease(taken, runner.heard_at)  # which it is renewed for from now on
            runner.serve(taken)
            self._observers.emit(SuspectStarted(runner.pid, taken.lease.job_id))

    async def gone(self, runner: Process) -> None:
        """A process that ran a suspect has ended."""
        suspect = self._run_by(runner)
        assert suspect is not None
        if runner.taken == 0:
            await self._give_back(suspect)
            return
        self._all.remove(suspect)
        if runner.code == 0 or runner.killed:
            return  # it has settled the job or given it back; what we kill the heart gives back
        self._observers.emit(SuspectDied(runner.pid, suspect.taken.lease.job_id, runner.cause))
        taker = suspect.taker
        heart = self._heart()
        if taker.code is None:
            taker.send(messages.Release(self.tokens(taker.worker)))
        elif heart is not None:
            await heart.release(taker.worker)

    async def _give_back(self, suspect: SuspectJob) -> None:
        heart = self._heart()
        if heart is not None:
            await heart.give_back(held_lease(suspect.taken, 0.0), RETURN_DELAY_S * (1 + random.random()))
        self._all.remove(suspect)

    def _run_by(self, process: Process) -> SuspectJob | None:
        return next((each for each in self._all if each.runner is process), None)


class Declarations:
    """Asks one process that serves to store the schedules that the application declares, once for each start of the
    supervisor; if that process ends before it has, another.

    If every process did so, one that is replaced after a crash would bring back what its code says, although a newer
    version of the program has started elsewhere since. With `--reload` the code is new, and is stored again.
    """

    def __init__(self, fleet: Callable[[], Iterable[Process]]) -> None:
        self._fleet = fleet
        self._asked: Process | None = None
        self._are_stored = False

    def ready(self, process: Process) -> None:
        """A process serves."""
        if process.schedules and self._asked is None and not self._are_stored:
            self._asked = process
            process.send(messages.ProcessOrder("declare"))

    def stored(self, process: Process) -> None:
        """A process has stored them."""
        if process is self._asked:
            self._asked, self._are_stored = None, True

    def gone(self, process: Process) -> None:
        """A process has ended."""
        if process is self._asked:
            self._asked = None
            for other in self._fleet():
                if other.state == "running":
                    self.ready(other)

    def changed(self) -> None:
        """The program has changed: what is stored is old."""
        self._asked, self._are_stored = None, False
