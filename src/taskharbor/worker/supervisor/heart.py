"""The heart of a supervisor: renews the leases of all worker processes, and gives back what a dead one held.

It runs in the parent, where no handler runs. It decides nothing about a job: a lease that the store refuses is reported
to the process that holds it. What a process held when it died goes back with one more `lost`; what the supervisor's own
kill interrupted goes back with nothing recorded.

An address may mean different stores to two processes. A store that knows none of a process's jobs, and has never seen
its worker, is not the store that the process uses: then nothing is reported, and the worker renews its own leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace

from taskharbor.drivers.base import WORKER_SILENCE, Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import StoreClock, follow, is_stale
from taskharbor.model.errors import BackendUnavailable, InvalidJob, JobNotFound, TaskHarborError
from taskharbor.model.events import Observers
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Retry
from taskharbor.model.process_events import JobsReleased, LeasesNotKept, StoreDiffers
from taskharbor.policy.trail import with_trail
from taskharbor.worker.outage import Backoff
from taskharbor.worker.progress_notes import NoteGate
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import HeldLease, Process
from taskharbor.worker.upkeep import ROUND_INTERVAL_S
from taskharbor.worker.waiting import set_within

RELEASE_AGAIN_S = (1.0, 5.0)  # a reserve that a process sent before it died may be carried out after its death


class FleetHeart:
    """Renews the leases of all processes of a supervisor, in one store."""

    def __init__(
        self,
        dsn: str,
        fleet: Callable[[], Iterable[Process]],
        *,
        lease: timedelta,
        every: float,
        observers: Observers,
        held_elsewhere: Callable[[str], Sequence[str]] = lambda worker: (),
    ) -> None:
        self._driver: Driver = open_driver(dsn)
        self._fleet = fleet
        self._observers = observers
        self._held_elsewhere = held_elsewhere  # tokens of leases that a worker took and another process holds
        self._lease = lease
        self._every = every
        self._clock = StoreClock()
        self._opened = asyncio.Event()
        self._ending = asyncio.Event()
        self._failing = False
        self.renews: bool | None = None  # whether it can; None: it has not opened the store yet
        self._extending = asyncio.Lock()  # one call at a time: a reply must not put back an older end of a lease
        self.notes = NoteGate()  # signals that a process has reported progress of a job
        self._tasks = (
            asyncio.create_task(self._run(), name="taskharbor-fleet-heart"),
            asyncio.create_task(self._store_notes(), name="taskharbor-fleet-notes"),
        )

    async def stop(self) -> None:
        """Stop renewing, and close the connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._driver.close()

    async def _run(self) -> None:
        backoff, seconds, followed = Backoff(), 0.0, 0.0
        while True:
            await asyncio.sleep(seconds)
            again = False
            try:
                if not self._opened.is_set():
                    await self._driver.open_existing()  # the worker has created it
                if not self.renews or is_stale(self._clock) or self._clock.monotonic() - followed > ROUND_INTERVAL_S:
                    await follow(self._clock, self._driver.server_time)
                    followed = self._clock.monotonic()
                if self._opened.is_set():
                    again = await self.beat()
            except Exception as error:
                self._failed("extend" if self._opened.is_set() else "open", error)
                self._report(renews=False)
                again = True
            else:
                self._opened.set()
                self._failing = False
                self._report(renews=True)
            if again:
                seconds = min(backoff.next(), self._every)
            else:
                backoff.reset()
                seconds = self._every

    def _report(self, *, renews: bool) -> None:
        """Report to every process when that has changed: one whose leases nobody renews takes no jobs."""
        if renews is not self.renews:
            self.renews = renews
            for process in self._fleet():
                process.send(messages.Keeping(renews))

    async def _store_notes(self) -> None:
        await self._opened.wait()
        while True:
            await self.notes.wait(self._clock)
            try:
                await self.beat(only_notes=True)
            except Exception as error:
                self._failed("extend", error)

    async def beat(self, *, only_notes: bool = False) -> bool:
        """Renew all renewable leases in one call; return whether some have to be tried again soon.

        `only_notes`: only those of jobs whose progress waits to be stored.
        """
        self.notes.take(self._clock)
        now = self._clock.monotonic()
        due: list[tuple[Process, HeldLease]] = []
        for process in self._fleet():
            due += ((process, held) for held in process.renewable(now) if held.note or not only_notes)
        if not due:
            return False
        again = False
        async with self._extending:
            results = await self._extend([held for _, held in due])
        news: dict[Process, tuple[list[Lease], list[tuple[str, str, str]]]] = {}
        for (process, held), result in zip(due, results, strict=True):
            renewed, lost = news.setdefault(process, ([], []))
            if isinstance(result, Lease):
                held.lease = result
                renewed.append(result)
            elif isinstance(result, BackendUnavailable):
                again = True  # its record is locked, which says nothing about the lease
            elif isinstance(result, InvalidJob):
                again = True  # the store does not take its progress: without it the lease is extended
            else:
                lost.append((held.lease.token, type(result).__name__, str(result)))
        for process, (renewed, lost) in news.items():
            if not renewed and not lost:
                continue
            found = renewed or any(name != JobNotFound.__name__ for _, name, _ in lost)
            if found or await self._knows(process):
                process.kept(renewed, lost)
            elif process.leases:
                process.elsewhere = True
                self._observers.emit(StoreDiffers(process.pid, process.number, process.worker))
        return again

    async def _extend(self, leases: Sequence[HeldLease]) -> Sequence[Lease | TaskHarborError]:
        """Extend leases, with the progress that waits."""
        now, extended = self._clock.now(), [held.lease for held in leases]
        sent = {held.lease.token: held.note for held in leases if held.note}
        if not sent:
            return await self._driver.extend(extended, now, self._lease)
        for held in leases:
            held.note = b""
        try:
            # Only a process whose driver keeps progress sends any.
            results = await self._driver.extend(extended, now, self._lease, sent)
        except Exception:
            self._put_back(sent, leases)
            raise
        self._put_back(
            sent, [held for held, one in zip(leases, results, strict=True) if isinstance(one, BackendUnavailable)]
        )
        return results

    def _put_back(self, sent: Mapping[str, bytes], leases: Iterable[HeldLease]) -> None:
        """What was not stored waits again, unless something newer has come."""
        for held in leases:
            held.note = held.note or sent.get(held.lease.token, b"")
            self.notes.waiting = self.notes.waiting or bool(held.note)

    async def _knows(self, process: Process) -> bool:
        """Whether the worker of a process has sent a heartbeat to this store, as every worker does."""
        return any(info.worker == process.worker for info in await self._driver.workers(self._clock.now()))

    # What a dead process held ----------------------------------------------------------------------------------

    async def recover(self, process: Process) -> None:
        """Give back what a dead process held: at once, and again a moment later what was reserved after its death."""
        if not process.worker:
            return
        jobs = await self._until_done(partial(self._give_back, process))
        if jobs:
            self._observers.emit(JobsReleased(process.worker, jobs))
        if process.code != 0:
            await self._until_done(partial(self._forget, process.worker))
        if process.code == 0 or process.killed:
            return  # it had stopped reserving jobs
        for number, seconds in enumerate(RELEASE_AGAIN_S):
            if number == 0:
                await asyncio.sleep(seconds)
            elif await set_within(seconds, self._ending):
                return
            if late := await self._until_done(partial(self._give_back, process)):
                self._observers.emit(JobsReleased(process.worker, late))

    async def release(self, worker: str) -> None:
        """Give back what a dead worker held."""
        if jobs := await self._until_done(partial(self._release, worker)):
            self._observers.emit(JobsReleased(worker, jobs))

    async def give_back(self, held: HeldLease, seconds: float) -> None:
        """Return a job to its queue, due in `seconds`, with nothing recorded."""

        async def settle() -> int:
            now = self._clock.now()
            outcome = await self._returned(held, now + timedelta(seconds=seconds), "no process could run it alone")
            [refusal] = await self._driver.settle([outcome], now)
            return int(refusal is None)

        await self._until_done(settle)

    def end(self) -> None:
        """Skip further releases: what was reserved so late goes to other workers when its lease ends."""
        self._ending.set()

    async def _until_done(self, work: Callable[[], Awaitable[int]]) -> int:
        """Try until the store answers, or until every lease has ended, so that nothing is left to give back."""
        backoff, begun = Backoff(), self._clock.monotonic()
        while self._clock.monotonic() - begun < self._lease.total_seconds() + self._every:
            try:
                async with asyncio.timeout(self._lease.total_seconds()):
                    await self._opened.wait()
                return await work()
            except Exception as error:
                self._failed("release", error)
                await asyncio.sleep(backoff.next())
        return 0

    async def _give_back(self, process: Process) -> int:
        """Give back the jobs of a process that we killed as at any shutdown: a slow handler is not the job's fault."""
        given = 0
        if process.killed and process.leases:
            leases = list(process.leases.values())
            outcomes = [await self._returned(held, None, "its process was killed") for held in leases]
            answers = await self._driver.settle(outcomes, self._clock.now())
            given = sum(answer is None for answer in answers)
            process.leases.clear()
        return given + await self._release(process.worker)

    async def _returned(self, held: HeldLease, run_at: datetime | None, why: str) -> Retry:
        """The outcome that gives a job back, with its trail: the process that held it cannot write that any more."""
        outcome, now = Retry(held.lease, run_at, held.attempts), self._clock.now()
        try:
            job = (await self._driver.inspect(held.lease.job_id, now)).job
        except JobNotFound:
            return outcome
        return with_trail(job, outcome, now, lost_by=held.lost_by, why=why)

    async def _forget(self, worker: str) -> int:
        """Take a dead worker off the store's list, as it does at a stop; what it said of its losses stays."""
        now = self._clock.now()
        for info in await self._driver.workers(now):
            if info.worker == worker:
                seen_at = now - WORKER_SILENCE
                await self._driver.beat(replace(info, running=0, seen_at=seen_at, stopped_at=now), seen_at)
        return 0

    async def _release(self, worker: str) -> int:
        return await self._driver.release(worker, self._clock.now(), list(self._held_elsewhere(worker)))

    def _failed(self, doing: str, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self._observers.emit(LeasesNotKept(doing, error))
