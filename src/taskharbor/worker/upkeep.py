"""Upkeep: what a worker does beside its jobs. It says that it is alive, follows the store's clock, and prunes.

None of it is needed for a job to run: a failure is left to the next round, and the fetcher reports the outage.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket

from taskharbor.drivers.contract import WORKER_SILENCE, Driver
from taskharbor.model.clock import Clock, follow, is_stale
from taskharbor.model.job import WorkerInfo
from taskharbor.worker.capacity import Capacity
from taskharbor.worker.outage import Outage
from taskharbor.worker.service import Service
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.stop_budget import StopBudget

BEAT_EVERY = 15.0
LOOK_EVERY = 5.0  # whether a beat would say something else than the last one did
ROUND_EVERY = 60.0  # of following the clock and pruning
PRUNE_BATCH = 500


class Upkeep(Service):
    """Beats four times a minute, and soon after its figures have changed, but never more often than it looks at them.

    Once a minute it follows the clock and prunes what is past its retention. A last beat, dated back, has the store
    forget a worker that stops: one that only fell silent stands in its list for a minute.
    """

    def __init__(
        self, *, settings: WorkerSettings, driver: Driver, clock: Clock, outage: Outage, capacity: Capacity
    ) -> None:
        super().__init__()
        self._settings = settings
        self._driver = driver
        self._clock = clock
        self._outage = outage
        self._capacity = capacity
        self._said = (0, 0)  # what the last beat told
        self._started_at = clock.now()
        self._next_round = clock.monotonic() + ROUND_EVERY * random.random()  # so that workers do not prune together

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._beat()
                due = self._clock.monotonic() >= self._next_round
                if due or is_stale(self._clock):
                    await follow(self._clock, self._driver.server_time)
                if due:
                    self._next_round = self._clock.monotonic() + ROUND_EVERY
                    await self._prune()
                self._outage.answered("upkeep")
            except Exception as error:
                self._outage.failed("upkeep", error)
            await self._until_next_beat()

    async def end(self, budget: StopBudget, share: float = 1.0) -> bool:
        """End, and leave the list of those that serve."""
        if not await super().end(budget, share):
            return False
        leaving = asyncio.ensure_future(self._leave())
        return await budget.ended_or_cancelled(leaving)

    async def _leave(self) -> None:
        try:
            await self._beat(leaving=True)
        except Exception as error:
            self._outage.failed("upkeep", error)

    async def _until_next_beat(self) -> None:
        until = self._clock.monotonic() + BEAT_EVERY
        while not self.stopping and (left := until - self._clock.monotonic()) > 0 and self._said == self._figures():
            await self.rest(asyncio.ensure_future(self._clock.sleep(min(left, LOOK_EVERY))))

    def _figures(self) -> tuple[int, int]:
        return len(self._capacity.running), self._capacity.stuck

    async def _beat(self, leaving: bool = False) -> None:
        settings, now = self._settings, self._clock.now()
        seen_at = now - WORKER_SILENCE if leaving else now
        running, stuck = self._said = self._figures()
        info = WorkerInfo(
            worker=settings.name,
            queues=settings.queues,
            running=running,
            started_at=self._started_at,
            concurrency=settings.concurrency,
            host=socket.gethostname(),
            pid=os.getpid(),
            seen_at=seen_at,
            stuck=stuck,
            stopped_at=now if leaving else None,
        )
        await self._driver.beat(info, seen_at)

    async def _prune(self) -> None:
        """Small batches, with a turn of the loop between two, so that no lock is held for long."""
        before = self._clock.now() - self._driver.retention
        pruned = PRUNE_BATCH
        while pruned == PRUNE_BATCH and not self.stopping:
            pruned = await self._driver.prune(before, PRUNE_BATCH)
            await asyncio.sleep(0)
