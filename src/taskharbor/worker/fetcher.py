"""The fetcher: reserves at most as many jobs as there are free slots.

    wait for room ──► reserve(limit=room) ──► jobs: (bind results) to the executor, and again
         ▲                   └──► nothing: wait for a hint, for the time of a job that this worker put off, or poll
         └── the store does not answer: wait with growing, jittered delays, for ever

Reserving before a slot is free would burn the lease while the job waits. A reserve that is under way when the worker
stops is awaited: its jobs are given back at once instead of when their leases end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.lease import Reserved
from taskharbor.tasks.flow_metadata import BIND_KEY
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.due_times import DueTimes
from taskharbor.worker.loop_event import LoopEvent
from taskharbor.worker.outage import Backoff, Outage
from taskharbor.worker.result_binder import ResultBinder
from taskharbor.worker.service import Service
from taskharbor.worker.settings import WorkerSettings


class Fetcher(Service):
    """Reserves jobs until a stop, or (`until_empty`) until a reserve returns none and none is held."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        driver: Driver,
        clock: Clock,
        outage: Outage,
        held: dict[str, Delivery],
        room: Callable[[], int],
        changed: LoopEvent,
        start: Callable[[list[Reserved], dict[str, Exception]], None],
        binder: ResultBinder,
        until_empty: bool,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._driver = driver
        self._clock = clock
        self._outage = outage
        self._held = held
        self._room = room
        self._changed = changed  # set whenever a handler has ended or an outcome was settled
        self._start = start
        self._binder = binder
        self._until_empty = until_empty
        self.polled_at: float | None = None
        self._due_times = DueTimes()
        self._waiting = False
        self._again = False  # only the times to wait for have changed: wait again, without a reserve

    def expect(self, moment: datetime) -> None:
        """A job that this worker put off (a retry, a snooze) is due at `moment`: reserve then, not at the next poll."""
        if self._due_times.note(moment) and self._waiting:
            self._again = True
            self.wake()

    async def run(self) -> None:
        settings, backoff = self._settings, Backoff()
        while not self.stopping:
            self._changed.clear()
            limit = self._room()
            if limit <= 0:
                await self.rest(asyncio.ensure_future(self._changed.wait()))
                continue
            idle, now = not self._held, self._clock.now()
            self._due_times.passed(now)
            try:
                batch = await self._driver.reserve(settings.queues, now, settings.lease, limit, settings.name)
            except Exception as error:
                self._outage.failed("reserve", error)
                await self.rest(asyncio.ensure_future(asyncio.sleep(backoff.next())))
                continue
            backoff.reset()
            # Also for "wait" and "results": they may have failed earlier, and have not been called since.
            self._outage.answered("reserve", "wait", "results")
            self.polled_at = self._clock.monotonic()
            if batch:
                unbound: dict[str, Exception] = {}
                for reserved in batch:
                    if reserved.job.metadata and BIND_KEY in reserved.job.metadata:
                        batch, unbound = await self._binder.bind(batch)
                        break
                self._start(batch, unbound)
                await asyncio.sleep(0)  # let handlers that end within this turn free their slots first
            elif self._until_empty and idle:
                return
            else:
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        """Wait for a hint, the next poll, the time of a job put off here, or (`until_empty`) a handler's end."""
        self._waiting = self._again = True
        try:
            while self._again and not self.stopping:
                self._again = False
                waiters = [asyncio.ensure_future(self._hint())]
                if self._until_empty:
                    waiters.append(asyncio.ensure_future(self._changed.wait()))
                if (seconds := self._due_times.seconds(self._clock.now())) is not None:
                    waiters.append(asyncio.ensure_future(self._clock.sleep(seconds)))
                await self.rest(*waiters)
        finally:
            self._waiting = False

    async def _hint(self) -> object:
        try:
            # Not always the same pause: workers that poll in step would get jobs in the same order for ever.
            pause = self._settings.poll_interval * (0.8 + 0.2 * random.random())
            hint = await self._driver.wait(self._settings.queues, pause)
        except Exception as error:
            self._outage.failed("wait", error)
            await asyncio.sleep(self._settings.poll_interval)
            return False
        self._outage.answered("wait")
        return hint
