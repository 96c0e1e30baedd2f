"""Losses at a worker: it tells the store which leases ended while it was cut off, and asks that of other workers.

    a lease ends here, alive, after a renewal that did not reach the store ─► `CutOff` ─► the next heartbeat
    a job is reserved whose leases ended before ─► the heartbeats of all workers ─► `policy.losses`: how many crashes

So a job dies of crashes alone. The store refuses the late outcome as always: only the count changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER, Driver, within_lease
from taskharbor.model.clock import Clock
from taskharbor.model.lease import Reserved
from taskharbor.policy.losses import crashes, cut_off_deliveries, most_losses
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.outage import Outage

MAX_CUT_OFF = 1000  # the newest that a heartbeat names; what is older counts as a crash


class CutOff:
    """The executions that this worker lost, alive, because no renewal reached the store."""

    def __init__(self) -> None:
        self._executions: deque[tuple[str, int]] = deque(maxlen=MAX_CUT_OFF)
        self.noted = 0  # how many there ever were
        self.on_note: Callable[[], None] = lambda: None

    @property
    def executions(self) -> tuple[tuple[str, int], ...]:
        """Job id and delivery of each, the oldest first."""
        return tuple(self._executions)

    def note(self, delivery: Delivery, now: datetime) -> None:
        """A delivery is held no longer, without an outcome. It was cut off if its lease could not be renewed."""
        execution = delivery.job.id, delivery.job.deliveries
        if delivery.unrenewed and delivery.lease.expires_at <= now and execution not in self._executions:
            self._executions.append(execution)
            self.noted += 1
            self.on_note()


class LossDriver:
    """The fetcher's driver: of a job that it reserves, `lost` counts the crashes alone. All other calls go through."""

    def __init__(self, driver: Driver, clock: Clock, outage: Outage, max_lost: int, own: CutOff) -> None:
        self._driver = driver
        self._clock = clock
        self._outage = outage
        self._max_lost = max_lost
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        batch = await self._driver.reserve(queues, now, lease_for, limit, worker)
        for reserved in batch:
            if reserved.job.lost:
                return await self.weigh(batch, lease_for)
        return batch

    async def weigh(self, batch: list[Reserved], lease_for: timedelta) -> list[Reserved]:
        """The same reservations, with `lost` as the number of crashes. Nobody renews their leases meanwhile."""
        try:
            async with asyncio.timeout(within_lease(lease_for)):
                # All on record: what a worker said stays true when it stops, or is cut off once more.
                workers = await self._driver.workers(self._clock.now() - WORKER_FORGOTTEN_AFTER)
        except Exception as error:  # a job is not buried without knowing: it runs once more, alone
            self._outage.failed("workers", error)
            ceiling, last = most_losses(self._max_lost), self._max_lost - 1
            return [each if each.job.lost >= ceiling else _counting(each, min(each.job.lost, last)) for each in batch]
        self._outage.answered("workers")
        return [self._weighed(each, cut_off_deliveries(each.job.id, workers)) for each in batch]

    def _weighed(self, reserved: Reserved, cut_off: set[int]) -> Reserved:
        job, lost_by = reserved.job, reserved.lost_by
        if not job.lost:
            return reserved
        cut_off.update(delivery for id, delivery in self._own.executions if id == job.id)
        if lost_by is not None and job.deliveries - 1 in cut_off:
            reserved = replace(reserved, lost_by=replace(lost_by, cut_off=True))
        return _counting(reserved, crashes(job, cut_off, self._max_lost))


def _counting(reserved: Reserved, lost: int) -> Reserved:
    return reserved if lost == reserved.job.lost else replace(reserved, job=replace(reserved.job, lost=lost))
