"""The driver: the calls of the contract, each one transaction of the store.

Two rules before all others. It never reads a clock, except in `server_time`: `now` is an argument. And it decides
nothing: core computes backoffs and says that a job is dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from taskharbor.drivers import (
    ATTEMPT_FIELDS,
    Driver,
    DriverError,
    Enqueued,
    FlowInfo,
    JobInfo,
    JobQuery,
    JobRecord,
    Lease,
    Outcome,
    Page,
    QueueHead,
    Reserved,
    Seen,
    TaskHarborError,
    WorkerInfo,
    check_name,
)
from taskharbor.model.times import from_ms
from taskharbor_mystore import admin, reading
from taskharbor_mystore.enqueue import enqueue
from taskharbor_mystore.heads import heads
from taskharbor_mystore.leases import extend, release
from taskharbor_mystore.options import parse
from taskharbor_mystore.reserve import reserve
from taskharbor_mystore.settle import settle
from taskharbor_mystore.store import Store, connect

POLL_EVERY_S = 0.02


class MyStoreDriver(Driver):
    """`mystore://host/name`. `Driver` has a default for every verb that this store lacks."""

    unkept = ATTEMPT_FIELDS

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._options = parse(dsn)
        self._store: Store = connect(self._options.address)  # yours: connect in open()
        self._drained: dict[str, int] = {}  # queue → its last arrival when a reserve left nothing there

    @property
    def retention(self) -> timedelta:
        return self._options.retention

    async def open(self) -> None:
        """Connect, and create what an empty store lacks; twenty processes may do so at once."""

    async def close(self) -> None:
        """Close connections. Jobs inflight run again after their leases."""

    def sibling(self) -> MyStoreDriver:
        return MyStoreDriver(self._dsn)

    async def server_time(self) -> datetime:
        """The store's own clock, which all workers follow. It must not go back."""
        return from_ms(int(time.time() * 1000))

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        with self._store.lock:
            return enqueue(self._store, jobs, now, self._options.max_payload)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        with self._store.lock:
            reserved = reserve(self._store, queues, now, lease_for, limit, worker)
            if len(reserved) < limit:
                self._drained.update({queue: self._store.arrived.get(queue, 0) for queue in queues})
            return reserved

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> list[Lease | DriverError]:
        with self._store.lock:
            return extend(self._store, leases, now, lease_for)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        with self._store.lock:
            return settle(self._store, outcomes, now, self._options.max_payload)

    # Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        with self._store.lock:
            return reading.results(self._store, ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        with self._store.lock:
            return release(self._store, worker, now, keep)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Only a hint, so polling will do in the beginning. Yours may subscribe to a notification of the store."""
        ends = asyncio.get_running_loop().time() + timeout
        while True:
            if any(self._store.arrived.get(queue, 0) > self._drained.get(queue, 0) for queue in queues):
                return True
            left = ends - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, POLL_EVERY_S))

    # Pause

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        with self._store.lock:
            self._store.paused.add(queue)

    async def resume(self, queue: str) -> None:
        with self._store.lock:
            self._store.paused.discard(queue)
            self._store.arrived[queue] = self._store.next_number()

    async def is_paused(self, queue: str) -> bool:
        return queue in self._store.paused

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        with self._store.lock:
            return heads(self._store, queues, now, n)

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        with self._store.lock:
            return reading.inspect(self._store, id, now)

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        with self._store.lock:
            return reading.counts(self._store, now, cap)

    async def queues(self) -> list[str]:
        with self._store.lock:
            return sorted({row.record.queue for row in self._store.rows.values()} | self._store.paused)

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        with self._store.lock:
            return admin.requeue(self._store, ids, now, run_at, reset_attempts, seen)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        with self._store.lock:
            return admin.cancel(self._store, ids, now, seen=seen)

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        with self._store.lock:
            return admin.delete(self._store, ids, seen)

    async def prune(self, before: datetime, limit: int) -> int:
        with self._store.lock:
            return admin.prune(self._store, before, limit)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        with self._store.lock:
            return reading.flow(self._store, flow_id, now)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        with self._store.lock:
            return admin.cancel_flow(self._store, flow_id, now)

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        with self._store.lock:
            admin.beat(self._store, info, now)

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        with self._store.lock:
            return reading.workers(self._store, now)

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        with self._store.lock:
            return reading.list_jobs(self._store, now, wanted)
