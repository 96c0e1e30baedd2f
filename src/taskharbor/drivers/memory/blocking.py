"""Blocking calls on memory: those of the driver, because they do their work at once and never suspend.

Ctrl-C takes effect after a call that changes the store, not amid it. Otherwise it could leave a job that is stored but
in no queue, and a person who stops a loop of `enqueue` in a notebook goes on with that store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.signal_safe import DeferredSignals
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import StoredAudit
from taskharbor.model.errors import BackendUnavailable, DriverError, TaskHarborError
from taskharbor.model.job import JobRecord, Seen
from taskharbor.model.lease import Enqueued
from taskharbor.model.schedule import ScheduleChange

if TYPE_CHECKING:
    from taskharbor.drivers.memory.driver import MemoryDriver

T = TypeVar("T")


class MemoryBlocking:
    """The blocking calls of a memory driver, and the driver that they are made on."""

    def __init__(self, driver: MemoryDriver) -> None:
        self._driver = driver
        self._is_closed = False
        self.open = driver.open
        self.server_time = driver.server_time
        self.inspect = driver.inspect
        self.list = driver.list
        self.results = driver.results
        self.flow = driver.flow
        self.workers = driver.workers
        self.flows = driver.flows
        self.figures = driver.figures
        self.audit = driver.audit
        self.schedules = driver.schedules
        self.counts = driver.counts
        self.queues = driver.queues
        self.is_paused = driver.is_paused
        self.heads = driver.heads

    def until(self, deadline: float) -> MemoryBlocking:
        """Itself: no call takes time."""
        if self._is_closed:
            raise BackendUnavailable("the store's blocking calls were closed")
        return self

    def close(self) -> None:
        self._is_closed = True

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        return await _uninterrupted(self._driver.enqueue, jobs, now)

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        return await _uninterrupted(self._driver.requeue, ids, now, run_at, reset_attempts, seen)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await _uninterrupted(self._driver.cancel, ids, now, seen)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        return await _uninterrupted(self._driver.cancel_flow, flow_id, now)

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        return await _uninterrupted(self._driver.delete, ids, seen)

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        return await _uninterrupted(self._driver.amend, changes, now)

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        await _uninterrupted(self._driver.put_audit, entries, now)

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        return await _uninterrupted(self._driver.change_schedules, changes, now)

    async def pause(self, queue: str) -> None:
        await _uninterrupted(self._driver.pause, queue)

    async def resume(self, queue: str) -> None:
        await _uninterrupted(self._driver.resume, queue)


async def _uninterrupted(call: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Await a call that never suspends. A signal that arrives meanwhile is handled when it has ended."""
    with DeferredSignals():
        return await call(*args)
