"""The fetcher: reserves at most as many jobs as there are free slots.

    wait for room ──► reserve(limit=room) ──► jobs: (bind results) to the executor, and again
         ▲                   └──► nothing: wait for a hint, for the time at which a job becomes due, or poll
         └── the store does not answer: wait with growing, jittered delays, for ever

Reserving before a slot is free would use up the lease while the job waits. A reserve that is under way when the worker
stops is awaited: its jobs are given back at once instead of when their leases end.

When a job becomes due the store sends no hint. A worker knows the times of jobs that it has put off itself
(`DueTimes`), and an idle one asks the store for the next time (`upcoming`). That may be too early: of a paused queue,
of a full group, of a job that another worker gets. So wake-ups that find nothing come at growing intervals.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from taskharbor.model.lease import Reserved
from taskharbor.tasks.flow_metadata import BIND_KEY, JOIN_TYPE, LAUNCH_TYPE
from taskharbor.worker.executor import Executor
from taskharbor.worker.outage import Backoff
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.result_binder import ResultBinder
from taskharbor.worker.service import Service
from taskharbor.worker.waiting import HINTED_S

MAX_TIMES = 1000  # of jobs that were put off
FLOOR_S = 0.025  # doubled with each wake-up in vain: 0.05 s after the first, then 0.1, up to the poll interval


class DueTimes:
    """When the jobs that this worker has put off are due again, the next one first.

    This is an optimisation only: what is not noted here is found by the next poll.
    """

    def __init__(self) -> None:
        self._moments: list[datetime] = []

    def note(self, moment: datetime) -> bool:
        """Remember a time; return whether it is the next one now."""
        if len(self._moments) >= MAX_TIMES:
            return False
        heapq.heappush(self._moments, moment)
        return self._moments[0] is moment

    def passed(self, now: datetime) -> None:
        """Forget the times that have come: a reserve is about to look for their jobs."""
        while self._moments and self._moments[0] <= now:
            heapq.heappop(self._moments)

    def seconds(self, now: datetime) -> float | None:
        """Seconds until the next time; None without one."""
        return (self._moments[0] - now).total_seconds() if self._moments else None


class Fetcher(Part, Service):
    """Reserves jobs until a stop, or (`until_empty`) until a reserve returns none, none is held and `before_end` has
    nothing to do."""

    def __init__(
        self,
        parts: WorkerParts,
        executor: Executor,
        *,
        reserve: Callable[[datetime, int], Awaitable[list[Reserved]]],
        room: Callable[[], int],
        until_empty: bool,
        before_end: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__(parts)
        self._executor = executor
        self._changed = executor.capacity.changed  # set whenever a handler has ended or an outcome was settled
        self._binder = ResultBinder(parts)
        self._reserve = reserve
        self._room = room
        self._until_empty = until_empty
        self._before_end = before_end  # whether it did something that may have brought jobs: see `until_empty`
        self.polled_at: float | None = None
        self._due_times = DueTimes()
        self._in_vain = 0  # how many wake-ups at a time that the store named found nothing to run since the last jobs
        self._woken = False  # by such a time
        self._not_here: set[datetime] = set()  # when jobs are due that this worker cannot run
        self._waiting = False
        self._again = False  # only the times to wait for have changed: wait again, without a reserve

    def expect(self, moment: datetime, here: bool = True) -> None:
        """A job that this worker put off (a retry, a snooze) is due at `moment`: reserve then, not at the next poll.

        Not `here`: a job that this worker cannot run. The next poll is soon enough for that one: if this worker were
        there in time, each time, the worker that can run it might never get it.
        """
        if not here:
            if len(self._not_here) < MAX_TIMES:
                self._not_here.add(moment)
        elif self._due_times.note(moment) and self._waiting:
            self._again = True
            self.wake()

    async def run(self) -> None:
        backoff = Backoff()
        while not self.stopping:
            self._changed.clear()
            limit = self._room()
            if limit <= 0:
                await self.rest(self._changed.wait())
                continue
            idle, now = not self._held, self._clock.now()
            self._due_times.passed(now)
            try:
                batch = await self._reserve(now, limit)
            except Exception as error:
                self._outage.failed("reserve", error)
                await self.rest(asyncio.sleep(backoff.next()))
                continue
            backoff.reset()
            # Also for "wait" and "results": they may have failed earlier, and have not been called since.
            self._outage.answered("reserve", "wait", "results")
            self.polled_at = self._clock.monotonic()
            if batch:
                if any(map(self._is_known, [reserved.job.type for reserved in batch])):
                    self._in_vain = 0
                else:  # jobs for other workers: one that finds only these must not be there first each time
                    self._in_vain += self._woken
                self._woken = False
                unbound: dict[str, Exception] = {}
                for reserved in batch:
                    if reserved.job.metadata and BIND_KEY in reserved.job.metadata:
                        batch, unbound = await self._binder.bind(batch)
                        break
                self._executor.start(batch, unbound)
                await asyncio.sleep(0)  # let handlers that end within this turn free their slots first
            elif self._until_empty and idle:
                if not await self._before_end():
                    return
            elif not self.stopping:
                self._in_vain += self._woken
                await self._wait_for_work(await self._seconds_until_more(now))

    def _is_known(self, type: str) -> bool:
        """Whether this worker can run jobs of a type."""
        return type in self._handlers or type in (JOIN_TYPE, LAUNCH_TYPE)

    async def _seconds_until_more(self, now: datetime) -> float | None:
        """Seconds until the store may have more jobs; None: it does not know, or not before the next poll.

        `now`: of the reserve that found nothing. What became due while that was under way is past, but not yet met.
        """
        try:
            self._not_here = {each for each in self._not_here if each > now}
            moment = await self._driver.upcoming(self._settings.queues, now)
            seconds = None if moment is None else (moment - self._clock.now()).total_seconds()
        except Exception as error:
            self._outage.failed("upcoming", error)
            return None
        self._outage.answered("upcoming")
        poll = self._settings.poll_interval
        if seconds is None or seconds >= self._interval() or moment in self._not_here:
            return None
        return seconds if not self._in_vain else max(seconds, min(FLOOR_S * 2.0 ** min(self._in_vain, 16), poll))

    async def _wait_for_work(self, until_more: float | None) -> None:
        """Wait for a hint, the next poll, the time of a job, or (`until_empty`) a handler's end."""
        self._waiting = self._again = True
        more_at = None if until_more is None else self._clock.monotonic() + until_more
        self._woken = False
        try:
            while self._again and not self.stopping:
                self._again = False
                waiters: list[Awaitable[Any]] = [self._hint()]
                if self._until_empty:
                    waiters.append(self._changed.wait())
                seconds = self._due_times.seconds(self._clock.now())
                if more_at is not None and (seconds is None or more_at - self._clock.monotonic() < seconds):
                    waiters.append(self._sleep_until(more_at))
                elif seconds is not None:
                    waiters.append(self._clock.sleep(seconds))
                await self.rest(*waiters)
        finally:
            self._waiting = False

    def _interval(self) -> float:
        """Seconds between two polls."""
        poll = self._settings.poll_interval
        return max(poll, HINTED_S) if self._driver.is_hinted() else poll

    def is_fresh(self) -> bool:
        """Whether it has asked the store as lately as it should have. Safe from any thread."""
        limit = max(10.0, 5 * self._settings.poll_interval, self._interval() + 10.0)
        return self.polled_at is not None and self._clock.monotonic() - self.polled_at < limit

    async def _sleep_until(self, more_at: float) -> None:
        await self._clock.sleep(more_at - self._clock.monotonic())
        self._woken = True

    async def _hint(self) -> object:
        try:
            # Not always the same pause: workers that poll in step would get jobs in the same order for ever.
            pause = self._interval() * (0.8 + 0.2 * random.random())
            hint = await self._driver.wait(self._settings.queues, pause)
        except Exception as error:
            self._outage.failed("wait", error)
            await asyncio.sleep(self._settings.poll_interval)
            return False
        self._outage.answered("wait")
        return hint
