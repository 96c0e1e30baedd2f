"""Losses at a worker: it tells the store which leases ended while it was cut off, and asks that of other workers.

    a lease ends here, alive, after a renewal that did not reach the store ─► `note` ─► the next heartbeat
    a job is reserved whose leases ended before ─► the heartbeats of all workers ─► `policy.losses`: how many crashes

So a job dies of crashes alone. The store refuses the late outcome as always: only the count changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER, within_lease
from taskharbor.model.lease import Reserved
from taskharbor.policy.losses import crashes, cut_off_deliveries, most_losses
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.parts import Part, WorkerParts

MAX_CUT_OFF = 1000  # the newest that a heartbeat names; what is older counts as a crash


class Losses(Part):
    """Reserves jobs, whose `lost` then counts the crashes alone; and knows the executions that this worker lost, alive,
    because no renewal reached the store."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts)
        self.cut_off: deque[tuple[str, int]] = deque(maxlen=MAX_CUT_OFF)  # job id and delivery, the oldest first
        self.noted = 0  # how many there ever were
        self.on_note: Callable[[], None] = lambda: None

    def note(self, delivery: Delivery) -> None:
        """A delivery is held no longer, without an outcome. It was cut off if its lease could not be renewed."""
        execution = delivery.job.id, delivery.job.deliveries
        over = delivery.lease.expires_at <= self._clock.now()
        if delivery.unrenewed and over and execution not in self.cut_off:
            self.cut_off.append(execution)
            self.noted += 1
            self.on_note()

    async def reserve(self, now: datetime, limit: int) -> list[Reserved]:
        """Reserve jobs of the worker's queues."""
        settings = self._settings
        batch = await self._driver.reserve(settings.queues, now, settings.lease, limit, settings.name)
        for reserved in batch:
            if reserved.job.lost:
                return await self.weigh(batch)
        return batch

    async def weigh(self, batch: list[Reserved]) -> list[Reserved]:
        """The same reservations, with `lost` as the number of crashes. Nobody renews their leases meanwhile."""
        max_lost = self._settings.max_lost
        try:
            async with asyncio.timeout(within_lease(self._settings.lease)):
                # All on record: what a worker said stays true when it stops, or is cut off once more.
                workers = await self._driver.workers(self._clock.now() - WORKER_FORGOTTEN_AFTER)
        except Exception as error:  # a job is not buried without knowing: it runs once more, alone
            self._outage.failed("workers", error)
            ceiling, last = most_losses(max_lost), max_lost - 1
            return [each if each.job.lost >= ceiling else _counting(each, min(each.job.lost, last)) for each in batch]
        self._outage.answered("workers")
        return [self._weighed(each, cut_off_deliveries(each.job.id, workers)) for each in batch]

    def _weighed(self, reserved: Reserved, cut_off: set[int]) -> Reserved:
        job, lost_by = reserved.job, reserved.lost_by
        if not job.lost:
            return reserved
        cut_off.update(delivery for id, delivery in self.cut_off if id == job.id)
        if lost_by is not None and job.deliveries - 1 in cut_off:
            reserved = replace(reserved, lost_by=replace(lost_by, cut_off=True))
        return _counting(reserved, crashes(job, cut_off, self._settings.max_lost))


def _counting(reserved: Reserved, lost: int) -> Reserved:
    return reserved if lost == reserved.job.lost else replace(reserved, job=replace(reserved.job, lost=lost))
