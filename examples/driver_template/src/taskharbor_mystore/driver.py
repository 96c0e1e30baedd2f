"""The driver: the calls of the contract, each one transaction of the store.

Two rules before all others. It never reads a clock, except in `server_time`: `now` is an argument. And it decides
nothing: core computes backoffs and says that a job is dead.
"""

from __future__ import annotations

import asyncio
import os
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
    StoreMissing,
    TaskHarborError,
    WorkerInfo,
    check_name,
)
from taskharbor.drivers.kit import accepts_any_name, from_us
from taskharbor_mystore import admin, reading
from taskharbor_mystore.connection import Connection
from taskharbor_mystore.enqueue import enqueue
from taskharbor_mystore.leases import extend, release
from taskharbor_mystore.options import parse
from taskharbor_mystore.reserve import arrivals, reserve
from taskharbor_mystore.settle import settle

POLL_EVERY_S = 0.05


@accepts_any_name
class MyStoreDriver(Driver):
    """`mystore:///path/jobs.db`. `Driver` has a default for every verb that this store lacks."""

    unkept = ATTEMPT_FIELDS

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._options = parse(dsn)
        self._connection = Connection(self._options.path)
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve left nothing there

    @property
    def retention(self) -> timedelta:
        return self._options.retention

    async def open(self) -> None:
        """Connect, and create the tables that an empty store lacks."""
        await self._connection.open()

    async def open_existing(self) -> None:
        """Open for a program that only reads: nothing is created."""
        if not await asyncio.to_thread(os.path.exists, self._options.path):
            raise StoreMissing(f"no store at {self._options.path}")
        await self.open()

    async def close(self) -> None:
        """Close the connection. Jobs inflight run again after their leases."""
        await self._connection.close()

    def sibling(self) -> MyStoreDriver:
        return MyStoreDriver(self._dsn)

    async def server_time(self) -> datetime:
        """The store's own clock, which all workers follow: for a file, that of the machine. It must not go back."""
        return from_us(time.time_ns() // 1_000_000 * 1000)

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        return await self._connection.call(enqueue, jobs, now, self._options.max_payload)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        reserved, arrived = await self._connection.call(
            lambda session: (reserve(session, queues, now, lease_for, limit, worker), arrivals(session, queues))
        )
        if len(reserved) < limit:
            self._seen.update(arrived)
        return reserved

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Mapping[str, bytes] | None = None
    ) -> list[Lease | DriverError]:
        return await self._connection.call(extend, leases, now, lease_for)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        return await self._connection.call(settle, outcomes, now, self._options.max_payload)

    # Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self._connection.call(reading.results, ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        return await self._connection.call(release, worker, now, keep)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Only a hint, so polling will do. Yours may subscribe to a notification of the store instead."""
        ends = asyncio.get_running_loop().time() + timeout
        while True:
            arrived = await self._connection.call(arrivals, queues)
            if any(number > self._seen.get(queue, 0) for queue, number in arrived.items()):
                return True
            left = ends - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, POLL_EVERY_S))

    # Queues

    async def pause(self, queue: str) -> None:
        await self._connection.call(admin.pause, queue)

    async def resume(self, queue: str) -> None:
        await self._connection.call(admin.resume, queue)

    async def is_paused(self, queue: str) -> bool:
        return await self._connection.call(reading.is_paused, queue)

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        return await self._connection.call(reading.heads, queues, now, n)

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        return await self._connection.call(reading.counts, now, cap)

    async def queues(self) -> list[str]:
        return await self._connection.call(reading.queues)

    # Jobs and flows

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        return await self._connection.call(reading.inspect, id, now)

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        return await self._connection.call(reading.list_jobs, now, wanted)

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        return await self._connection.call(admin.requeue, ids, now, run_at, reset_attempts, seen)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        return await self._connection.call(admin.cancel, ids, now, seen)

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        return await self._connection.call(admin.delete, ids, seen)

    async def prune(self, before: datetime, limit: int) -> int:
        return await self._connection.call(admin.prune, before, limit)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self._connection.call(reading.flow, flow_id, now)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        return await self._connection.call(admin.cancel_flow, flow_id, now)

    # Workers

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        await self._connection.call(admin.beat, info, now)

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        return await self._connection.call(reading.workers, now)
