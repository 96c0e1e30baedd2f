"""Suspects: jobs that were lost twice, each run in a process of its own, so that nobody waits for it or dies with it.

    a worker hands one on ──► room: the spare, or a new process, runs it and ends ──► it died: that job took it down
                         └──► none: given back for a moment

The lease stays that of the worker that took it. As long as the process is not known to have begun, nothing is counted
against the job, whatever happens to the process.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from taskharbor.model.events import Observers
from taskharbor.model.process_events import SuspectDied, SuspectStarted
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import HeldLease, Process, held

LATER = 1.0  # seconds, plus up to as many: for one that finds no room


class LeaseReturner(Protocol):
    """The part of the supervisor's heart that is needed here."""

    async def give_back(self, lease: HeldLease, seconds: float) -> None:
        """Let somebody take a job again, after some time, with nothing counted against it."""

    async def release(self, worker: str) -> None:
        """Give back what a worker held that is gone."""


class SuspectJob(msgspec.Struct, eq=False):
    """One job, the process that took it, and the one that runs it, once that is known."""

    lease: messages.TakenLease
    taker: Process
    runner: Process | None = None


class Suspects:
    """Runs at most `max_processes` of them at once. `start` starts a process that waits for its order."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Process]],
        heart: Callable[[], LeaseReturner | None],
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
        """The leases that a worker took and another process holds, or is about to."""
        return [each.lease.token for each in self._all if each.taker.worker == worker]

    async def take(self, taker: Process, lease: messages.TakenLease, *, ending: bool) -> None:
        """Run a job that a worker has handed on, or give it back."""
        suspect = SuspectJob(lease, taker)
        self._all.append(suspect)  # at once: its taker may die at any moment
        runner = None if ending or len(self._all) > self._max_processes else await self._start()
        if runner is None or runner.code is not None:  # no room, or the system gave no process
            await self._give_back(suspect)
        else:
            suspect.runner = runner
            runner.number = taker.number
            runner.leases[lease.token] = held(lease, runner.heard_at)  # from now on it is renewed as the runner's
            runner.serve(lease)
            self._observers.emit(SuspectStarted(runner.pid, lease.job_id))

    async def gone(self, runner: Process) -> None:
        """A process has ended that ran one of them."""
        suspect = self._run_by(runner)
        assert suspect is not None
        if runner.taken == 0:
            await self._give_back(suspect)
            return
        self._all.remove(suspect)
        if runner.code == 0 or runner.killed:
            return  # it has settled it or given it back; what we kill is given back by the heart
        self._observers.emit(SuspectDied(runner.pid, suspect.lease.job_id, runner.cause))
        taker = suspect.taker
        heart = self._heart()
        if taker.code is None:
            taker.release(self.tokens(taker.worker))
        elif heart is not None:
            await heart.release(taker.worker)

    async def _give_back(self, suspect: SuspectJob) -> None:
        heart = self._heart()
        if heart is not None:
            await heart.give_back(held(suspect.lease, 0.0), LATER * (1 + random.random()))
        self._all.remove(suspect)

    def _run_by(self, process: Process) -> SuspectJob | None:
        return next((each for each in self._all if each.runner is process), None)
