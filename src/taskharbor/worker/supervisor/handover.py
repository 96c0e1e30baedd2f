"""How a worker process reserves: it reports what it took to the parent before a job of it runs.

A suspect is handed on instead of run, so that it has a process of its own:

    reserve ──suspect──► SuspectTaken to the parent ──► another process: extend, inspect, run it as if reserved there
                                                            └── dies ──► Release to this worker: give the lease back

In the store the lease stays this worker's: `release` gives back the leases of one worker. So when the other process
dies, this worker releases what it no longer holds itself. No other process knows which leases those are, because a
reserve of this worker may be under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from taskharbor.model.lease import Lease, Reserved
from taskharbor.policy.suspects import is_suspect
from taskharbor.worker.losses import Losses
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.supervisor import messages

if TYPE_CHECKING:
    from taskharbor.worker.supervisor.child_channel import ChildChannel

logger = logging.getLogger("taskharbor.worker")


class Handover(Part):
    """Reserves jobs, and hands suspects on."""

    def __init__(self, parts: WorkerParts, losses: Losses, channel: ChildChannel) -> None:
        super().__init__(parts)
        self._losses = losses
        self._channel = channel
        self._lock = asyncio.Lock()  # no release while a reserve is under way
        self.loop = asyncio.get_running_loop()

    async def reserve(self, now: datetime, limit: int) -> list[Reserved]:
        """Reserve jobs; return those that this process is to run."""
        async with self._lock:
            self._channel.deliveries_exist()
            if self._channel.suspect is not None:
                return await self._take()
            left = self._channel.jobs_left
            if left == 0:
                return []  # this process retires
            if left is not None:
                limit = min(limit, left)
            while True:
                batch = await self._losses.reserve(now, limit)
                if not batch:
                    return batch
                # This process may have been stopped meanwhile: an expired lease may be another worker's by now.
                now = self._clock.now()
                fresh = [reserved for reserved in batch if reserved.lease.expires_at > now]
                own = [reserved for reserved in fresh if not (reserved.job.lost and self._hand_on(reserved))]
                self._channel.taken([self._taken(reserved) for reserved in own])
                if own or not fresh:
                    return own

    async def release(self, keep: Collection[str]) -> None:
        """Give back what this worker took and no longer holds, except what other processes hold for it (`keep`)."""
        async with self._lock:
            try:
                await self._driver.release(self._worker, self._clock.now(), [*self._channel.tokens(), *keep])
            except Exception as error:  # nothing renews it: another worker takes it over when its lease ends
                logger.warning("what was handed on could not be given back: %s", type(error).__name__)

    def _hand_on(self, reserved: Reserved) -> bool:
        job, max_lost = reserved.job, self._settings.max_lost
        if not self._channel.hands_on or not is_suspect(job, max_lost) or job.lost >= max_lost:
            return False
        if self._handlers.get(job.type) is None:
            return False  # no process here can run it
        return self._channel.hand_on(self._taken(reserved))

    async def _take(self) -> list[Reserved]:
        """The one job that this process is to run, as if it had been reserved here; nothing if its lease is gone."""
        handed = self._channel.suspect
        assert handed is not None
        [extended] = await self._driver.extend([handed.lease], self._clock.now(), self._settings.lease)
        batch = []
        if isinstance(extended, Lease):
            job = (await self._driver.inspect(handed.lease.job_id, self._clock.now())).job
            taken = Reserved(job, extended, handed.lost_by)
            batch = await self._losses.weigh([taken])
        self._channel.suspect = None  # this process has nothing more to do: it retires
        self._channel.jobs_left = len(batch)
        self._channel.taken([self._taken(reserved) for reserved in batch])
        return batch

    def _taken(self, reserved: Reserved) -> messages.TakenLease:
        job, handler = reserved.job, self._handlers.get(reserved.job.type)
        timeout = job.timeout or (handler.timeout if handler is not None else None)
        limit = None if timeout is None else timeout.total_seconds()
        return messages.TakenLease(reserved.lease, job.attempts, limit, reserved.lost_by)
