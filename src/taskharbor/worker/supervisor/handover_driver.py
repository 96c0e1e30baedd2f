"""The fetcher's driver in a worker process: it reports what it reserves to the parent before a job of it runs.

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
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.model.clock import Clock
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.times import from_ms, to_ms
from taskharbor.policy.suspects import is_suspect
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.worker.losses import LossDriver
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.supervisor import messages

if TYPE_CHECKING:
    from taskharbor.worker.supervisor.child_channel import ChildChannel

logger = logging.getLogger("taskharbor.worker")


class HandoverDriver:
    """A driver as the fetcher sees it. All calls except `reserve` go to the driver itself."""

    def __init__(
        self,
        driver: LossDriver,
        clock: Clock,
        handlers: HandlerRegistry,
        settings: WorkerSettings,
        channel: ChildChannel,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._handlers = handlers
        self._settings = settings
        self._channel = channel
        self._lock = asyncio.Lock()  # no release while a reserve is under way
        self.loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        async with self._lock:
            self._channel.deliveries_exist()
            if self._channel.suspect is not None:
                return await self._take(lease_for)
            left = self._channel.jobs_left
            if left == 0:
                return []  # this process retires
            if left is not None:
                limit = min(limit, left)
            while True:
                batch = await self._driver.reserve(queues, now, lease_for, limit, worker)
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
                await self._driver.release(self._settings.name, self._clock.now(), [*self._channel.tokens(), *keep])
            except Exception as error:  # nothing renews it: another worker takes it over when its lease ends
                logger.warning("what was handed on could not be given back: %s", type(error).__name__)

    def _hand_on(self, reserved: Reserved) -> bool:
        job, max_lost = reserved.job, self._settings.max_lost
        if not self._channel.hands_on or not is_suspect(job, max_lost) or job.lost >= max_lost:
            return False
        if self._handlers.get(job.type) is None:
            return False  # no process here can run it
        return self._channel.hand_on(self._taken(reserved))

    async def _take(self, lease_for: timedelta) -> list[Reserved]:
        """The one job that this process is to run, as if it had been reserved here; nothing if its lease is gone."""
        handed = self._channel.suspect
        assert handed is not None
        lease = Lease(handed.job_id, handed.queue, handed.token, from_ms(handed.expires_ms))
        [extended] = await self._driver.extend([lease], self._clock.now(), lease_for)
        batch = []
        if isinstance(extended, Lease):
            job = (await self._driver.inspect(lease.job_id, self._clock.now())).job
            taken = Reserved(job, extended, messages.read_lost(handed.lost_by))
            batch = await self._driver.weigh([taken], lease_for)
        self._channel.suspect = None  # this process has nothing more to do: it retires
        self._channel.jobs_left = len(batch)
        self._channel.taken([self._taken(reserved) for reserved in batch])
        return batch

    def _taken(self, reserved: Reserved) -> messages.TakenLease:
        job, lease = reserved.job, reserved.lease
        handler = self._handlers.get(job.type)
        timeout = job.timeout or (handler.timeout if handler is not None else None)
        return messages.TakenLease(
            lease.job_id,
            lease.queue,
            lease.token,
            to_ms(lease.expires_at),
            job.attempts,
            None if timeout is None else timeout.total_seconds(),
            messages.write_lost(reserved.lost_by),
        )
