"""Suspects: jobs that were lost twice. Each runs in a process of its own, so that no other job waits or dies with it.

    a worker hands one on ──► the spare, or a new process, runs it and ends ──► it died: that job took it down
                         └──► too many suspects already: given back for a moment

In the store the lease stays that of the worker that took it. Until the process has reported the lease as taken, nothing
is counted against the job, whatever happens to the process.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from taskharbor.model.events import Observers
from taskharbor.model.process_events import SuspectDied, SuspectStarted
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import HeldLease, Process, held_lease

RETURN_DELAY_S = 1.0  # plus up to as much again


class LeaseReturner(Protocol):
    """The part of the supervisor's heart that is needed here."""

    async def give_back(self, lease: HeldLease, seconds: float) -> None:
        """Return a job to its queue, due in `seconds`, with nothing recorded."""

    async def release(self, worker: str) -> None:
        """Give back what a dead worker held."""


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
        """The tokens of leases that a worker took and another process holds, or is about to hold."""
        return [each.lease.token for each in self._all if each.taker.worker == worker]

    async def take(self, taker: Process, lease: messages.TakenLease, *, ending: bool) -> None:
        """Run a job that a worker has handed on, or give it back."""
        suspect = SuspectJob(lease, taker)
        self._all.append(suspect)  # before anything else: its taker may die at any moment
        runner = None if ending or len(self._all) > self._max_processes else await self._start()
        if runner is None or runner.code is not None:  # too many, or the system could not start a process
            await self._give_back(suspect)
        else:
            suspect.runner = runner
            runner.number = taker.number
            runner.leases[lease.token] = held_lease(lease, runner.heard_at)  # from now on it is renewed for the runner
            runner.serve(lease)
            self._observers.emit(SuspectStarted(runner.pid, lease.job_id))

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
            await heart.give_back(held_lease(suspect.lease, 0.0), RETURN_DELAY_S * (1 + random.random()))
        self._all.remove(suspect)

    def _run_by(self, process: Process) -> SuspectJob | None:
        return next((each for each in self._all if each.runner is process), None)
