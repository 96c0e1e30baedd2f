"""The fetcher's driver in a worker process: what it reserves is told to the parent before anything of it runs.

A suspect is handed on instead of run, so that it has a process of its own:

    reserve ──suspect──► Suspect to the parent ──► another process: extend, inspect, and run it as if reserved there
                                                        └── dies ──► Release to this one: its lease is given back

The lease stays this worker's in the store: nothing but the worker that took a lease can be told to have lost it. So
when the other process dies, this one releases what it no longer holds itself; nobody else knows which that is, because
a reserve of its own may be on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.times import from_ms, to_ms
from taskharbor.policy.suspects import is_suspect
from taskharbor.tasks.handler import HandlerRegistry
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.supervisor import messages

if TYPE_CHECKING:
    from taskharbor.worker.supervisor.child_channel import ChildChannel

logger = logging.getLogger("taskharbor.worker")


class HandoverDriver:
    """A driver as the fetcher sees it. Everything but `reserve` is the driver's own."""

    def __init__(
        self, driver: Driver, clock: Clock, handlers: HandlerRegistry, settings: WorkerSettings, link: ChildChannel
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._handlers = handlers
        self._settings = settings
        self._link = link
        self._turn = asyncio.Lock()  # no release while a reserve is under way
        self.loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        async with self._turn:
            self._link.seen()
            if self._link.suspect is not None:
                return await self._take(lease_for)
            left = self._link.left
            if left == 0:
                return []  # it retires
            if left is not None:
                limit = min(limit, left)
            while True:
                batch = await self._driver.reserve(queues, now, lease_for, limit, worker)
                if not batch:
                    return batch
                # This process may have stood still since it asked: what has expired meanwhile is another worker's.
                now = self._clock.now()
                fresh = [reserved for reserved in batch if reserved.lease.expires_at > now]
                own = [reserved for reserved in fresh if not (reserved.job.lost and self._hand_on(reserved))]
                self._link.taken([self._handed(reserved) for reserved in own])
                if own or not fresh:
                    return own

    async def release(self, keep: Collection[str]) -> None:
        """Give back what this worker took and holds no longer, except the tokens that other processes hold for it."""
        async with self._turn:
            try:
                await self._driver.release(self._settings.name, self._clock.now(), [*self._link.tokens(), *keep])
            except Exception as error:  # nobody renews it any more: it is taken over when its lease ends
                logger.warning("what was handed on could not be given back: %s", type(error).__name__)

    def _hand_on(self, reserved: Reserved) -> bool:
        job, max_lost = reserved.job, self._settings.max_lost
        if not self._link.hands_on or not is_suspect(job, max_lost) or job.lost >= max_lost:
            return False
        if self._handlers.get(job.type) is None:
            return False  # nobody here can run it
        return self._link.hand_on(self._handed(reserved))

    async def _take(self, lease_for: timedelta) -> list[Reserved]:
        """The one job that this process is to run: if nobody has taken it back, it is as if reserved here."""
        handed = self._link.suspect
        assert handed is not None
        lease = Lease(handed.job_id, handed.queue, handed.token, from_ms(handed.expires_ms))
        [answer] = await self._driver.extend([lease], self._clock.now(), lease_for)
        batch = []
        if isinstance(answer, Lease):
            batch = [Reserved((await self._driver.inspect(lease.job_id, self._clock.now())).job, answer)]
        self._link.suspect = None  # from here on there is nothing more for this process: it retires
        self._link.left = len(batch)
        self._link.taken([self._handed(reserved) for reserved in batch])
        return batch

    def _handed(self, reserved: Reserved) -> messages.TakenLease:
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
        )
