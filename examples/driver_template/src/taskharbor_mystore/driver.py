"""The driver. It works from the first minute: every method still asks the memory driver.

Replace them one at a time, running the suite after each: a red case names the sentence of the contract that broke.
The order below is a good one. Two rules before all others: never read a clock (except in `server_time`), `now` is
given; and never decide anything, core does (no backoff, no "this job is dead").
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers import (
    DEFAULT_RETENTION,
    Driver,
    DriverError,
    Enqueued,
    FlowInfo,
    JobInfo,
    JobRecord,
    Lease,
    Outcome,
    Page,
    Reserved,
    SingleVerbs,
    State,
    TaskHarborError,
    WorkerInfo,
    open_driver,
)


class MyStoreDriver(SingleVerbs):
    """`mystore://host/name`. `SingleVerbs` gives ack, retry, fail and extend_lease on top of settle and extend."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._store: Driver = open_driver("memory://")  # yours: nothing yet; connect in open()

    @property
    def retention(self) -> timedelta:
        """How long done and cancelled records stay. Let the DSN say otherwise: `?retention=36h`."""
        return DEFAULT_RETENTION

    # 1. Coming and going

    async def open(self) -> None:
        """Connect, and create what an empty store lacks; twenty processes may do so at once. Twice does no harm."""
        await self._store.open()

    async def close(self) -> None:
        """Let go of connections. Twice, or before open, does nothing. Jobs inflight run again after their leases."""
        await self._store.close()

    def sibling(self) -> MyStoreDriver:
        """Another driver on the same store, not yet opened: for another event loop, thread or process."""
        other = MyStoreDriver(self._dsn)
        other._store = self._store.sibling()  # yours needs no such line: the DSN says where the store is
        return other

    async def server_time(self) -> datetime:
        """The store's own clock, aware, UTC: what all workers follow. It must not go back."""
        return await self._store.server_time()

    # 2. The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> builtins.list[Enqueued]:
        """All or none, in one transaction. `check_job` each first (from taskharbor.drivers), then:
        known id → existed; known (queue, key) → existed; resolve dependencies; refuse cycles; store."""
        return await self._store.enqueue(jobs, now)

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> builtins.list[Reserved]:
        """Due jobs and expired leases, in the order of the contract, as few round trips as you can: the hot path.
        New token (128 random bits), deliveries + 1, lost + 1 if a lease expired. No two callers get the same job."""
        return await self._store.reserve(queues, now, lease_for, limit, worker)

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta
    ) -> builtins.list[Lease | DriverError]:
        """`now + lease_for`, never earlier than it was. Errors are answered in their places, not raised."""
        return await self._store.extend(leases, now, lease_for)

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> builtins.list[TaskHarborError | None]:
        """Each outcome in a transaction, fenced by its token. Remember token and kind: the same again answers None.
        `clean_error` makes any error text storable; `check_spawn` and `check_job` look at what is spawned."""
        return await self._store.settle(outcomes, now)

    # 3. Beside the verbs

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """For every id asked; follows `handed_to`."""
        return await self._store.results(ids)

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        """Give back what the worker holds under valid leases, except these tokens: lost + 1, run_at cleared."""
        return await self._store.release(worker, now, keep)

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """True once work may have arrived. Only a hint, so a loop of short sleeps will do in the beginning."""
        return await self._store.wait(queues, timeout)

    # 4. Pause

    async def pause(self, queue: str) -> None:
        """A flag for a queue: no new reservations."""
        await self._store.pause(queue)

    async def resume(self, queue: str) -> None:
        """Take it away; this wakes who waits."""
        await self._store.resume(queue)

    async def is_paused(self, queue: str) -> bool:
        """Whether it is set."""
        return await self._store.is_paused(queue)

    # 5. Admin: nothing here is on a worker's way, so it may be slow

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        """One job as it reads at `now`, or JobNotFound. The state follows from record, lease and `now` alone."""
        return await self._store.inspect(id, now)

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
        """In the order of ids by code point. The cursor holds the last id and a checksum: damaged is ValueError."""
        return await self._store.list(
            now=now, queue=queue, state=state, type=type, group=group, flow_id=flow_id, cursor=cursor, limit=limit
        )

    async def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        """By queue and state, zeros left out."""
        return await self._store.counts(now)

    async def queues(self) -> builtins.list[str]:
        """Those that hold a job or are paused, sorted."""
        return await self._store.queues()

    async def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> builtins.list[DriverError | None]:
        """Dead and cancelled jobs come back; with open dependencies they are blocked."""
        return await self._store.requeue(ids, now, run_at, reset_attempts)

    async def cancel(self, ids: Sequence[str], now: datetime) -> builtins.list[DriverError | None]:
        """Whatever is not terminal. An inflight job frees its group's slot, once."""
        return await self._store.cancel(ids, now)

    async def delete(self, ids: Sequence[str]) -> builtins.list[DriverError | None]:
        """Any job that no unfinished one depends on. Its idempotency key is free again."""
        return await self._store.delete(ids)

    async def prune(self, before: datetime, limit: int) -> int:
        """Done and cancelled jobs with finished_at < before; never the DLQ, never half of a running flow."""
        return await self._store.prune(before, limit)

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        """Nodes by id, an edge for each place in a depends_on; `flow_status` tells the status. Or JobNotFound."""
        return await self._store.flow(flow_id, now)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        """Cancel what is not terminal and set the flag: newcomers are stored cancelled."""
        return await self._store.cancel_flow(flow_id, now)

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        """Note a worker, seen now."""
        await self._store.beat(info, now)

    async def workers(self, now: datetime) -> builtins.list[WorkerInfo]:
        """Those heard in the last minute, by name."""
        return await self._store.workers(now)
