"""The memory driver: the calls of the contract, each one transaction under the store's lock.

Every call does its work at once and awaits nothing, `wait` excepted. So a call cannot be cancelled half-way, and a
driver may be used from any thread and any event loop, opened or not. `memory://` is private to the driver and its
siblings; `memory://name` is shared by all drivers of that name in the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from taskharbor.drivers.base import Driver
from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.memory import admin, reading
from taskharbor.drivers.memory.enqueue import enqueue
from taskharbor.drivers.memory.options import parse
from taskharbor.drivers.memory.reserve import reserve
from taskharbor.drivers.memory.schedules import change_schedules, list_due_schedules, list_schedules
from taskharbor.drivers.memory.settle import extend, release, save, settle
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.queries import AuditQuery, DueQuery, FlowQuery, JobQuery, ScheduleQuery
from taskharbor.drivers.wait_calls import WaitCall
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.bounds import check_audit, check_figures, check_name
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import Figures, FlowInfo, FlowPage, JobInfo, JobRecord, Page, QueueHead, Seen, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Outcome
from taskharbor.model.schedule import ScheduleChange, SchedulePage
from taskharbor.model.times import from_ms

_STORES: dict[str, MemoryStore] = {}  # memory://name: kept for the life of the process, as drivers come and go
_STORES_LOCK = threading.Lock()


class MemoryDriver(Driver):
    """Jobs in memory.

    >>> MemoryDriver("memory://").retention
    datetime.timedelta(days=1)
    """

    def __init__(self, dsn: str = "memory://") -> None:
        name, self._retention, self._max_payload = parse(dsn)
        self._dsn = dsn
        self.store = _store_named(name) if name else MemoryStore()
        self._drained: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there

    @property
    def retention(self) -> timedelta:
        return self._retention

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go of: what is inflight runs again after its lease."""

    def sibling(self) -> MemoryDriver:
        other = MemoryDriver(self._dsn)
        other.store = self.store
        return other

    def blocking(self) -> BlockingCalls:
        """The calls that a client makes, on the calling thread."""
        from taskharbor.drivers.memory.blocking import MemoryBlocking

        return MemoryBlocking(self)

    async def server_time(self) -> datetime:
        store = self.store
        with store.lock:
            store.time = max(store.time, from_ms(int(time.time() * 1000)))
            return store.time

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        with self._changing() as store:
            return enqueue(store, jobs, now, self._max_payload)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        store = self.store
        with store.lock:
            reserved = reserve(store, queues, now, lease_for, limit, worker)
            for name in queues:
                queue = store.queues.get(name)
                if queue is not None and (queue.paused or queue.peek() is None):
                    self._drained[name] = queue.arrived
            return reserved

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> list[Lease | TaskHarborError]:
        with self.store.lock:
            return extend(self.store, leases, now, lease_for, notes)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        with self._changing() as store:
            return settle(store, outcomes, now, self._max_payload)

    # Beside the verbs

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        with self.store.lock:
            save(self.store, lease, name, value, now)

    async def steps(self, id: str) -> list[Memo]:
        with self.store.lock:
            return reading.steps(self.store, id)

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        with self.store.lock:
            return reading.results(self.store, ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        with self._changing() as store:
            return release(store, worker, now, keep)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        store = self.store
        with store.lock:
            # A job that arrived between the last empty reserve and this call must not be waited through.
            for name in queues:
                queue = store.queues.get(name)
                if queue is not None and queue.arrived > self._drained.get(name, 0):
                    return True
            waiting = WaitCall(dict.fromkeys(queues, store.number))
            store.waiters.add(waiting)
        timer = waiting.loop.call_later(timeout, waiting.finish, False)
        try:
            return await waiting.future
        finally:
            timer.cancel()
            with store.lock:
                store.waiters.remove(waiting)

    @contextmanager
    def _changing(self) -> Iterator[MemoryStore]:
        """The store, for a call after which a reserve may find more: such a call ends the calls of `wait`."""
        store = self.store
        with store.lock:
            yield store
            if store.waiters:
                queues = [store.queues[name] for name in store.waiters.queues() if name in store.queues]
                store.waiters.wake({queue.name: queue.arrived for queue in queues})

    # Pause

    async def pause(self, queue: str) -> None:
        with self.store.lock:
            admin.pause(self.store, queue)

    async def resume(self, queue: str) -> None:
        with self._changing() as store:
            admin.resume(store, queue)

    async def is_paused(self, queue: str) -> bool:
        with self.store.lock:
            return reading.is_paused(self.store, queue)

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        with self.store.lock:
            return reading.heads(self.store, queues, now, n)

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        with self.store.lock:
            return reading.inspect(self.store, id, now)

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        with self.store.lock:
            return reading.counts(self.store, now, cap)

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        with self.store.lock:
            return reading.upcoming(self.store, queues, now)

    async def queues(self) -> list[str]:
        with self.store.lock:
            return reading.queues(self.store)

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        with self._changing() as store:
            return admin.requeue(store, ids, now, run_at, reset_attempts, seen)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        with self._changing() as store:
            return admin.cancel(store, ids, now, seen)

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        with self._changing() as store:
            return admin.delete(store, ids, seen)

    async def prune(self, before: datetime, limit: int) -> int:
        with self.store.lock:
            return admin.prune(self.store, before, limit, self._retention)

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        with self._changing() as store:
            return admin.amend(store, changes, now, self._max_payload)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        with self.store.lock:
            return reading.flow(self.store, flow_id, now)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        with self._changing() as store:
            return admin.cancel_flow(store, flow_id, now)

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        with self.store.lock:
            admin.beat(self.store, info, now)

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        with self.store.lock:
            return reading.workers(self.store, now)

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        with self.store.lock:
            return reading.list_jobs(self.store, now, wanted)

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        with self.store.lock:
            return reading.list_flows(self.store, now, wanted)

    # Figures and the audit

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        check_figures(rows)
        with self.store.lock:
            self.store.figures.add(rows, now)

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        with self.store.lock:
            return self.store.figures.read(since, until, queue)

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        check_audit(entries)
        with self.store.lock:
            self.store.audit.put(entries, now)

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        with self.store.lock:
            return self.store.audit.read(wanted)

    # Schedules

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        with self._changing() as store:
            return change_schedules(store, changes, now, self._max_payload)

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        with self.store.lock:
            return list_schedules(self.store, wanted)

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        with self.store.lock:
            return list_due_schedules(self.store, wanted)


def _store_named(name: str) -> MemoryStore:
    with _STORES_LOCK:
        if name not in _STORES:
            _STORES[name] = MemoryStore()
        return _STORES[name]
