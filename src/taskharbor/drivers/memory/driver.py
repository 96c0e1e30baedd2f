"""The face of the memory driver: the calls of the contract, each one transaction under the store's lock.

Every call does its work at once and awaits nothing, `wait` excepted; so a call cannot be cancelled half-way, and a
driver may be used from any thread and any event loop, opened or not. `memory://` is private to the driver and its
siblings, `memory://name` is shared by all drivers of that name in the process.
"""

from __future__ import annotations

import builtins
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from taskharbor.drivers.contract import DEFAULT_RETENTION, SingleVerbs
from taskharbor.drivers.dsn import options_of, scheme_of, span
from taskharbor.drivers.memory import admin, replay
from taskharbor.drivers.memory.enqueue import carry_out, plan
from taskharbor.drivers.memory.leases import extend, release, reserve
from taskharbor.drivers.memory.settle import settle
from taskharbor.drivers.memory.store import Store
from taskharbor.drivers.memory.wait import Waiter
from taskharbor.model.bounds import MAX_PAYLOAD, check_name
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, Page, State, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Outcome
from taskharbor.model.times import from_ms

_STORES: dict[str, Store] = {}  # memory://name: kept for the life of the process, as its users come and go
_STORES_LOCK = threading.Lock()
_OPTIONS = frozenset({"retention", "max_payload"})


class MemoryDriver(SingleVerbs):
    """Jobs in memory.

    >>> MemoryDriver("memory://").retention
    datetime.timedelta(days=1)
    """

    def __init__(self, dsn: str = "memory://") -> None:
        name, self._retention, self._max_payload = _parse(dsn)
        self._dsn = dsn
        self.store = _shared(name) if name else Store()
        self._worker = ""  # whose name was found to be one
        self._seen: dict[str, int] = {}  # queue → its last arrival when a reserve of this driver left nothing there

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

    async def server_time(self) -> datetime:
        store = self.store
        with store.lock:
            store.time = max(store.time, from_ms(int(time.time() * 1000)))
            return store.time

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        store = self.store
        with store.lock:
            made = plan(store, jobs, now, self._max_payload)
            carry_out(store, made, now)
            self._wake()
            return made.answers

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> builtins.list[Reserved]:
        if worker and worker != self._worker:
            check_name(worker, "worker")
            self._worker = worker  # the same one asks again and again
        store = self.store
        with store.lock:
            reserved = reserve(store, queues, now, lease_for, limit, worker) if limit > 0 else []
            for name in queues:
                queue = store.queues.get(name)
                if queue is not None and queue.drained():
                    self._seen[name] = queue.arrived
            return reserved

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta
    ) -> builtins.list[Lease | DriverError]:
        with self.store.lock:
            return extend(self.store, leases, now, lease_for)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> builtins.list[TaskHarborError | None]:
        with self.store.lock:
            answers = settle(self.store, outcomes, now, self._max_payload)
            self._wake()
            return answers

    # Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        with self.store.lock:
            return admin.results(self.store, ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        with self.store.lock:
            number = release(self.store, worker, now, keep)
            self._wake()
            return number

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        store = self.store
        with store.lock:
            # What came between the last empty reserve and this call must not be slept through.
            for name in queues:
                queue = store.queues.get(name)
                if queue is not None and queue.arrived > self._seen.get(name, 0):
                    return True
            waiter = Waiter(queues, store.number)
            store.waiters.add(waiter)
        timer = waiter.loop.call_later(timeout, waiter.answer, False)
        try:
            return await waiter.future
        finally:
            timer.cancel()
            with store.lock:
                store.waiters.remove(waiter)

    def _wake(self) -> None:
        if self.store.waiters:
            self.store.waiters.wake(self.store.queues)

    # Pause

    async def pause(self, queue: str) -> None:
        check_name(queue, "queue")
        with self.store.lock:
            self.store.queue(queue).paused = True

    async def resume(self, queue: str) -> None:
        store = self.store
        with store.lock:
            found = store.queues.get(queue)
            if found is not None and found.paused:
                found.paused = False
                found.arrived = store.next_number()
                self._wake()
                store.forget_if_empty(found)

    async def is_paused(self, queue: str) -> bool:
        with self.store.lock:
            found = self.store.queues.get(queue)
            return found is not None and found.paused

    # Admin

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        with self.store.lock:
            return admin.inspect(self.store, id, now)

    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        with self.store.lock:
            return admin.list_jobs(
                self.store,
                now,
                queue=queue,
                state=state,
                type=type,
                group=group,
                flow_id=flow_id,
                cursor=cursor,
                limit=limit,
            )

    async def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        with self.store.lock:
            return admin.counts(self.store, now)

    async def queues(self) -> builtins.list[str]:
        with self.store.lock:
            return sorted(name for name, queue in self.store.queues.items() if queue.paused or not queue.empty())

    async def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> builtins.list[DriverError | None]:
        with self.store.lock:
            answers = admin.requeue(self.store, ids, now, run_at, reset_attempts)
            self._wake()
            return answers

    async def cancel(self, ids: Sequence[str], now: datetime) -> builtins.list[DriverError | None]:
        with self.store.lock:
            answers = admin.cancel(self.store, ids, now)
            self._wake()
            return answers

    async def delete(self, ids: Sequence[str]) -> builtins.list[DriverError | None]:
        with self.store.lock:
            answers = admin.delete(self.store, ids)
            self._wake()
            return answers

    async def prune(self, before: datetime, limit: int) -> int:
        with self.store.lock:
            return admin.prune(self.store, before, limit)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        with self.store.lock:
            return admin.flow(self.store, flow_id, now)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        with self.store.lock:
            number = admin.cancel_flow(self.store, flow_id, now)
            self._wake()
            return number

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        with self.store.lock:
            admin.beat(self.store, info, now)

    async def workers(self, now: datetime) -> builtins.list[WorkerInfo]:
        with self.store.lock:
            return admin.workers(self.store, now)

    # Outside the contract: for tests that compare another driver with this one

    async def replay(
        self, queue: str, ids: Sequence[str], now: datetime, lease_for: timedelta, worker: str = ""
    ) -> builtins.list[Reserved]:
        """Reserve exactly these jobs in this order; AssertionError if one of them is not a legal choice."""
        with self.store.lock:
            return replay.replay(self.store, queue, ids, now, lease_for, worker)

    async def runnable(self, queue: str, now: datetime) -> bool:
        """Whether `reserve` would give anything from this queue."""
        with self.store.lock:
            return replay.runnable(self.store, queue, now)


def _parse(dsn: str) -> tuple[str, timedelta, int]:
    parts = urlsplit(dsn)
    if scheme_of(dsn) != "memory" or not dsn[len("memory:") :].startswith("//"):
        raise ValueError("expected memory:// or memory://name")
    if parts.path or parts.fragment:
        raise ValueError("expected memory:// or memory://name, got more than a name")
    if parts.netloc:
        check_name(parts.netloc, "name")
    options = options_of(dsn, _OPTIONS)
    retention = span(options["retention"], "retention") if "retention" in options else DEFAULT_RETENTION
    max_payload = options.get("max_payload", str(MAX_PAYLOAD))
    if not max_payload.isascii() or not max_payload.isdigit() or int(max_payload) < 1:
        raise ValueError(f"max_payload: expected a number of bytes, got {max_payload!r}")
    return parts.netloc, retention, int(max_payload)


def _shared(name: str) -> Store:
    with _STORES_LOCK:
        found = _STORES.get(name)
        if found is None:
            found = _STORES[name] = Store()
        return found
