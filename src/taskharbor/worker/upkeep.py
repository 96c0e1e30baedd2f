"""Upkeep: what a worker does beside its jobs. It sends heartbeats and figures, follows the store's clock, and prunes.

No job depends on it: after a failure it waits for its next round, and the fetcher reports the outage.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable

from taskharbor.drivers.base import WORKER_SILENCE
from taskharbor.model.clock import follow, is_stale
from taskharbor.model.job import WorkerInfo
from taskharbor.worker.capacity import Capacity
from taskharbor.worker.losses import Losses
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service
from taskharbor.worker.waiting import StopBudget

BEAT_INTERVAL_S = 15.0
CHECK_INTERVAL_S = 5.0  # between two checks whether the figures of the last heartbeat are still true
ROUND_INTERVAL_S = 60.0  # of following the clock and pruning
PRUNE_BATCH_JOBS = 500


class Upkeep(Part, Service):
    """Sends a heartbeat four times a minute, within 5 s after its figures have changed, and at once after a lease has
    ended because no renewal reached the store.

    Once a minute it follows the clock and prunes what is past its retention. A last heartbeat, dated back, makes the
    store forget a worker that stops: without it the worker would be listed for another minute.
    """

    def __init__(
        self, parts: WorkerParts, capacity: Capacity, losses: Losses, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` is called every few seconds."""
        super().__init__(parts)
        self._check = check
        clock = parts.clock
        self._capacity = capacity
        self._losses = losses
        losses.on_note = self.wake
        self._reported = 0  # how many cut-off executions the store knows of
        self._sent = (0, 0, 0)  # the figures of the last heartbeat
        self._started_at = clock.now()
        # Not after a whole interval, so that workers do not prune together.
        self._next_round = clock.monotonic() + ROUND_INTERVAL_S * random.random()

    async def run(self) -> None:
        while not self.stopping:
            try:
                due = self._clock.monotonic() >= self._next_round
                if due or is_stale(self._clock):
                    await follow(self._clock, self._driver.server_time)
                await self._beat()
                if due:
                    self._next_round = self._clock.monotonic() + ROUND_INTERVAL_S
                    await self._prune()
                await self._flush()
                self._outage.answered("upkeep")
            except Exception as error:
                self._outage.failed("upkeep", error)
            # Other workers must know of a lost lease before the job's next one ends.
            await self._until_next_beat(BEAT_INTERVAL_S if self._reported == self._losses.noted else CHECK_INTERVAL_S)

    async def end(self, budget: StopBudget, share: float = 1.0) -> bool:
        """End, and leave the store's list of workers."""
        if not await super().end(budget, share):
            return False
        leaving = asyncio.ensure_future(self._leave())
        return await budget.ended_or_cancelled(leaving)

    async def _leave(self) -> None:
        try:
            await self._beat(leaving=True)  # first: a worker is listed as long as it has not left
            await self._flush(now=True)
        except Exception as error:
            self._outage.failed("upkeep", error)

    async def _until_next_beat(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while not self.stopping and (left := until - self._clock.monotonic()) > 0 and self._sent == self._state():
            await self.rest(self._clock.sleep(min(left, CHECK_INTERVAL_S)))
            if is_stale(self._clock):  # the machine's clock was set
                return
            self._check()

    def _state(self) -> tuple[int, int, int]:
        return len(self._capacity.running), self._capacity.stuck, self._losses.noted

    async def _beat(self, leaving: bool = False) -> None:
        settings, now = self._settings, self._clock.now()
        seen_at = now - WORKER_SILENCE if leaving else now
        running, stuck, noted = self._sent = self._state()
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
            cut_off=tuple(self._losses.cut_off),
        )
        await self._driver.beat(info, seen_at)
        self._reported = noted

    async def _flush(self, now: bool = False) -> None:
        if self._figures is not None:
            await self._figures.flush(self._driver, now=now)

    async def _prune(self) -> None:
        """Prune in small batches, with a turn of the loop between two, so that no lock is held for long. Heartbeats go
        on meanwhile."""
        before = self._clock.now() - self._driver.retention
        pruned, beat_at = PRUNE_BATCH_JOBS, self._clock.monotonic()
        while pruned >= PRUNE_BATCH_JOBS and not self.stopping:
            pruned = await self._driver.prune(before, PRUNE_BATCH_JOBS)
            if self._clock.monotonic() - beat_at >= BEAT_INTERVAL_S:
                beat_at = self._clock.monotonic()
                await self._beat()
            await asyncio.sleep(0)
