"""The keeper: renews the leases of all worker processes in one call, and gives back what a dead one held.

It runs in the parent, where no handler runs. It decides nothing about a job: a lease that the store refuses is told
to the process that holds it, and what a process held when it died goes back with one more `lost`, except where we
killed it ourselves: then with nothing.

A store that knows not one of a process's jobs is another one than the process uses, unless that worker was seen in it:
an address may mean different things to two processes. Then nothing is told, and the worker keeps its leases itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial

from taskharbor.drivers.contract import Driver, open_existing
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import StoreClock, follow, is_stale
from taskharbor.model.errors import BackendUnavailable, JobNotFound
from taskharbor.model.events import Observers
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Retry
from taskharbor.model.process_events import JobsReleased, LeasesNotKept, StoreDiffers
from taskharbor.model.times import to_ms
from taskharbor.worker.outage import Backoff
from taskharbor.worker.supervisor.process import HeldLease, Process
from taskharbor.worker.upkeep import ROUND_EVERY

AGAIN = (1.0, 5.0)  # seconds: a reserve that a process had sent before it died may be carried out after its death


class FleetHeart:
    """Keeps the leases of a fleet in one store."""

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
        self._held_elsewhere = held_elsewhere  # the leases that a worker took and another process holds
        self._lease = lease
        self._every = every
        self._clock = StoreClock()
        self._opened = asyncio.Event()
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="taskharbor-keeper")
        self._failing = False

    async def stop(self) -> None:
        """Renew nothing any more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._driver.close()

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._opened.is_set():
            try:
                await open_existing(self._driver)  # the worker has made it
                await follow(self._clock, self._driver.server_time)
                self._opened.set()
            except Exception as error:
                self._failed("open", error)
                await asyncio.sleep(backoff.next())
        backoff.reset()
        followed = self._clock.monotonic()
        seconds = self._every
        while True:
            await asyncio.sleep(seconds)
            try:
                if is_stale(self._clock) or self._clock.monotonic() - followed > ROUND_EVERY:
                    await follow(self._clock, self._driver.server_time)
                    followed = self._clock.monotonic()
                again = await self.beat()
            except Exception as error:
                self._failed("extend", error)
                seconds = min(backoff.next(), self._every)
            else:
                self._failing = False
                if again:
                    seconds = min(backoff.next(), self._every)
                    continue
                backoff.reset()
                seconds = self._every

    async def beat(self) -> bool:
        """Renew everything that is to be renewed, in one call; whether something has to be tried again soon."""
        now = self._clock.monotonic()
        asked: list[tuple[Process, HeldLease]] = []
        for process in self._fleet():
            asked += ((process, held) for held in process.renewable(now))
        if not asked:
            return False
        again = False
        answers = await self._driver.extend([held.lease for _, held in asked], self._clock.now(), self._lease)
        news: dict[Process, tuple[list[tuple[str, int]], list[tuple[str, str, str]]]] = {}
        for (process, held), answer in zip(asked, answers, strict=True):
            renewed, lost = news.setdefault(process, ([], []))
            if isinstance(answer, Lease):
                held.lease = answer
                renewed.append((answer.token, to_ms(answer.expires_at)))
            elif isinstance(answer, BackendUnavailable):
                again = True  # somebody has its record locked: that says nothing about the lease
            else:
                lost.append((held.lease.token, type(answer).__name__, str(answer)))
        for process, (renewed, lost) in news.items():
            if not renewed and not lost:
                continue
            if renewed or any(name != JobNotFound.__name__ for _, name, _ in lost) or await self._knows(process):
                process.kept(renewed, lost)
            elif process.leases:
                process.elsewhere = True
                self._observers.emit(StoreDiffers(process.pid, process.number, process.worker))
        return again

    async def _knows(self, process: Process) -> bool:
        """Whether a process was seen in this store: every worker says there that it is alive."""
        return any(info.worker == process.worker for info in await self._driver.workers(self._clock.now()))

    # What a dead one held ------------------------------------------------------------------------------------

    async def recover(self, process: Process) -> None:
        """Give back what a process held that is gone, at once; and again a moment later what came after its death."""
        if not process.worker:
            return
        jobs = await self._until_done(partial(self._give_back, process))
        if jobs:
            self._observers.emit(JobsReleased(process.worker, jobs))
        if process.code == 0 or process.killed:
            return  # it had stopped asking for jobs
        for number, seconds in enumerate(AGAIN):
            if number == 0:
                await asyncio.sleep(seconds)
            elif await self._ended_within(seconds):
                return
            if late := await self._until_done(partial(self._give_back, process)):
                self._observers.emit(JobsReleased(process.worker, late))

    async def release(self, worker: str) -> None:
        """Give back what a worker held that is gone."""
        if jobs := await self._until_done(partial(self._release, worker)):
            self._observers.emit(JobsReleased(worker, jobs))

    async def give_back(self, held: HeldLease, seconds: float) -> None:
        """Let somebody take a job again, after some time, with nothing counted against it."""

        async def settle() -> int:
            now = self._clock.now()
            [answer] = await self._driver.settle(
                [Retry(held.lease, now + timedelta(seconds=seconds), held.attempts)], now
            )
            return int(answer is None)

        await self._until_done(settle)

    def end(self) -> None:
        """Nobody waits for the second look any more: what came so late is given to others when its lease is over."""
        self._ending.set()

    async def _ended_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return False
        return True

    async def _until_done(self, work: Callable[[], Awaitable[int]]) -> int:
        """Try until the store answers, or nothing can be left to give back because every lease is over."""
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
        """What we killed is given back as at any shutdown: that no handler ended in time is not a job's fault."""
        given = 0
        if process.killed and process.leases:
            outcomes = [Retry(held.lease, None, held.attempts) for held in process.leases.values()]
            answers = await self._driver.settle(outcomes, self._clock.now())
            given = sum(answer is None for answer in answers)
            process.leases.clear()
        return given + await self._release(process.worker)

    async def _release(self, worker: str) -> int:
        return await self._driver.release(worker, self._clock.now(), list(self._held_elsewhere(worker)))

    def _failed(self, doing: str, error: Exception) -> None:
        if not self._failing:
            self._failing = True
            self._observers.emit(LeasesNotKept(doing, error))
