"""The SQLite driver: each call of the contract is one transaction of its `Database`, but `cancel_flow` of a large flow.

A call may be cancelled at any await: if it was not begun, it never is; if it was begun, it is completed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.base import Driver, SqlDriver
from taskharbor.drivers.heads import check_next
from taskharbor.drivers.queries import AuditQuery, DueQuery, FlowQuery, JobQuery, ScheduleQuery
from taskharbor.drivers.slices import change_in_slices, counted_flow, prune_in_slices
from taskharbor.drivers.sqlite import admin, listing, reading, schedules, schema, steps
from taskharbor.drivers.sqlite.database import Database, close_database, open_database
from taskharbor.drivers.sqlite.enqueue import enqueue
from taskharbor.drivers.sqlite.lock_holders import staying_readers
from taskharbor.drivers.sqlite.options import located, parse
from taskharbor.drivers.sqlite.own_call import is_below_own_write
from taskharbor.drivers.sqlite.reserve import reserve
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.settle import extend, release, settle
from taskharbor.drivers.sqlite.store_clock import Reading, before_step, follow_step, machine_time, step_since
from taskharbor.drivers.sqlite.transaction import SqliteTransaction, SqliteTransactionSync
from taskharbor.drivers.unstorable import accepts_any_name
from taskharbor.drivers.wait_calls import WaitCall
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import BackendUnavailable, DriverError, TaskHarborError
from taskharbor.model.job import Figures, FlowInfo, FlowPage, JobInfo, JobRecord, Page, QueueHead, Seen, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Ack, Fail, Outcome
from taskharbor.model.schedule import ScheduleChange, SchedulePage

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.blocking import SqliteBlocking

MAX_INLINE_JOBS = 128  # in one inline call
MAX_INLINE_BYTES = 4096  # of a payload, a result or a trail


@accepts_any_name
class SqliteDriver(SqlDriver):
    """Jobs in an SQLite file.

    >>> SqliteDriver("sqlite:///jobs.db").retention
    datetime.timedelta(days=1)
    """

    def __init__(self, dsn: str) -> None:
        self.options = parse(dsn)
        self._dsn = dsn
        self._database: Database | None = None
        self._seen: dict[str, int] = {}  # queue → the last arrival seen by a reserve that left nothing ready there
        self._reading = Reading()

    @property
    def location(self) -> str:
        """The DSN by which a process in another folder finds the same file."""
        return located(self._dsn, self.options)

    @property
    def retention(self) -> timedelta:
        return self.options.retention

    async def open(self) -> None:
        if self._database is None or self._database.is_foreign():
            self._database = await open_database(self.options)

    async def open_existing(self) -> None:
        """Open a file that holds a store already; StoreMissing otherwise. Creates nothing."""
        if self._database is None or self._database.is_foreign():
            self._database = await open_database(self.options, only_existing=True)

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await close_database(database)

    def blocking(self) -> SqliteBlocking:
        from taskharbor.drivers.sqlite.blocking import SqliteBlocking

        return SqliteBlocking(self.options, self._reading)

    def sibling(self) -> SqliteDriver:
        other = SqliteDriver(self._dsn)
        other.options, other._reading = self.options, self._reading
        return other

    def on_connection(self, connection: Callable[[], Any], lock: AbstractContextManager[Any] | None = None) -> Driver:
        """A driver whose calls are a part of the transaction that is open on the caller's connection."""
        from taskharbor.drivers.sqlite.caller_connection import SqliteOnConnection

        return SqliteOnConnection(self.options, connection, lock)

    def migration_sql(self, found: int = 0) -> str:
        """The SQL that upgrades a schema of number `found` (0: none) to this one; empty if there is nothing to do."""
        return schema.script(found)

    @property
    def database(self) -> Database:
        """The open file."""
        if self._database is None:
            raise RuntimeError("the driver is not open: await open() first")
        if self._database.is_foreign():
            raise BackendUnavailable(
                f"{self.options.path}: this driver was opened before a fork; in the child, open() it again"
            )
        return self._database

    async def server_time(self) -> datetime:
        now = self._reading.present()
        if now is not None:
            return now
        if is_below_own_write(self.options.path):
            return machine_time(self._reading)
        is_first = self._reading.stepped is None
        taken = await self.database.write(lambda session: follow_step(session, is_first), inline=True)
        return self._reading.take(*taken)  # at once before the caller's clock takes it over

    async def hindered(self) -> list[str]:
        """Which programs keep the -wal file from starting over, for an operator."""
        return await staying_readers(self.options.path) if self.database.writer.is_full() else []

    # The four verbs

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        limit = self.options.max_payload
        return await self.database.write(
            lambda session: enqueue(session, jobs, now, limit), inline=_are_small_jobs(jobs), sync_inline=True
        )

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        if worker:
            check_name(worker, "worker")
        if limit <= 0:
            return []

        stepped = self._reading.stepped_at(now)
        taken, seen = await self.database.write(
            lambda session: reserve(session, queues, now, lease_for, limit, worker, stepped),
            durable=False,  # a power cut that undoes it leaves the job ready
            inline=limit <= MAX_INLINE_JOBS,
        )
        self._seen.update(seen)
        return taken

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> list[Lease | TaskHarborError]:
        stepped = self._reading.stepped_at(now)

        def work(session: WriteSession) -> list[Lease | TaskHarborError]:
            step = step_since(session, stepped)
            extended = extend(session, leases, now + step, lease_for, notes)
            return [before_step(each, step) if step and isinstance(each, Lease) else each for each in extended]

        return await self.database.write(
            work,
            durable=False,
            inline=len(leases) <= MAX_INLINE_JOBS,
        )

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        limit, stepped = self.options.max_payload, self._reading.stepped_at(now)
        return await self.database.write(
            lambda session: settle(session, outcomes, now, limit, stepped),
            inline=_are_small_outcomes(outcomes),
        )

    # Transactions of callers and handlers

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs on the caller's connection, in the caller's transaction."""
        from taskharbor.drivers.sqlite import caller_connection

        return await caller_connection.enqueue_on(connection, jobs, now, self.options)

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """The same on a synchronous connection."""
        from taskharbor.drivers.sqlite import caller_connection

        return caller_connection.enqueue_on_sync(connection, jobs, now, self.options)

    def transaction(self, lease: Lease) -> SqliteTransaction:
        return SqliteTransaction(self.database, lease, self._reading)

    def transaction_sync(self, lease: Lease) -> SqliteTransactionSync:
        return SqliteTransactionSync(self.database, lease, self._reading)

    # The rest of a worker's calls

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        stepped = self._reading.stepped_at(now)
        return await self.database.write(
            lambda session: release(session, worker, now + step_since(session, stepped), keep)
        )

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        stepped = self._reading.stepped_at(now)
        await self.database.write(
            lambda session: steps.save(session, lease, name, value, now + step_since(session, stepped)),
            inline=type(value) is bytes and len(value) <= MAX_INLINE_BYTES,
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        database = self.database
        call = WaitCall({name: self._seen.get(name, 0) for name in queues})
        database.add_wait(call)
        timer = call.loop.call_later(timeout, call.finish, False)
        try:
            # What came between the last empty reserve and this call must not be slept through.
            arrivals = await database.read(lambda session: reading.last_arrivals(session, queues))
            return call.concerns(arrivals) or await call.future
        finally:
            timer.cancel()
            database.waits.remove(call)

    async def prune(self, before: datetime, limit: int) -> int:
        places, retention = self.database.prune_places, self.options.retention

        def some(limit: int) -> Awaitable[int]:
            return self.database.write(lambda session: admin.prune(session, before, limit, places, retention))

        return await prune_in_slices(limit, some)

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        await self.database.write(lambda session: admin.beat(session, info, now), durable=False, inline=True)

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        # A power cut may undo it: not worth a sync.
        await self.database.write(lambda session: reading.add_figures(session, rows, now), durable=False)

    # Reading

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        return await self.database.read(lambda session: reading.inspect(session, id, now))

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        return await self.database.read(lambda session: reading.results(session, ids))

    async def steps(self, id: str) -> list[Memo]:
        return await self.database.read(lambda session: steps.steps(session, id))

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        return await self.database.read(lambda session: reading.counts(session, now, cap), long=True)

    async def queues(self) -> list[str]:
        return await self.database.read(reading.queues)

    async def is_paused(self, queue: str) -> bool:
        return await self.database.read(lambda session: reading.is_paused(session, queue))

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> list[QueueHead]:
        check_next(n)
        return await self.database.read(lambda session: reading.heads(session, queues, now, n))

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        return await self.database.read(lambda session: reading.upcoming(session, queues, now))

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        return await self.database.read(lambda session: reading.flow(session, flow_id, now), long=True)

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        return await self.database.read(lambda session: reading.workers(session, now))

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        return await self.database.read(lambda session: reading.figures(session, since, until, queue), long=True)

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        return await self.database.read(lambda session: listing.list_jobs(session, now, wanted), long=True)

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        return await self.database.read(lambda session: listing.list_flows(session, wanted), long=True)

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        return await self.database.read(lambda session: listing.list_audit(session, wanted), long=True)

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        return await self.database.read(lambda session: schedules.list_schedules(session, wanted))

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        return await self.database.read(lambda session: schedules.list_due_schedules(session, wanted))

    # Changing

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        def some(ids: Sequence[str], seen: Sequence[Seen] | None) -> Awaitable[list[DriverError | None]]:
            return self.database.write(lambda session: admin.requeue(session, ids, now, run_at, reset_attempts, seen))

        return await change_in_slices("requeue", ids, seen, some)

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        def some(ids: Sequence[str], seen: Sequence[Seen] | None) -> Awaitable[list[DriverError | None]]:
            return self.database.write(lambda session: admin.cancel(session, ids, now, seen=seen))

        return await change_in_slices("cancel", ids, seen, some)

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        place: str | None = ""
        with counted_flow(flow_id) as cancelled:
            while place is not None:
                cut = partial(admin.cancel_flow, flow_id=flow_id, after=place, now=now)
                some, place = await self.database.write(cut)
                cancelled.number += some
        return cancelled.number

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        limit = self.options.max_payload
        return await self.database.write(lambda session: admin.amend(session, changes, now, limit))

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        def some(ids: Sequence[str], seen: Sequence[Seen] | None) -> Awaitable[list[DriverError | None]]:
            return self.database.write(lambda session: admin.delete(session, ids, seen))

        return await change_in_slices("delete", ids, seen, some)

    async def pause(self, queue: str) -> None:
        await self.database.write(lambda session: admin.pause(session, queue))

    async def resume(self, queue: str) -> None:
        await self.database.write(lambda session: admin.resume(session, queue))

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        await self.database.write(lambda session: listing.put_audit(session, entries, now))

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        limit = self.options.max_payload
        return await self.database.write(lambda session: schedules.change_schedules(session, changes, now, limit))


def _are_small_jobs(jobs: Sequence[JobRecord]) -> bool:
    """Whether the jobs are few and small enough to be written inline. `enqueue` reports invalid ones later."""
    if len(jobs) > MAX_INLINE_JOBS // 4:
        return False
    try:
        return all(len(job.payload) <= MAX_INLINE_BYTES and len(job.depends_on) <= MAX_INLINE_JOBS for job in jobs)
    except (AttributeError, TypeError):
        return False


def _are_small_outcomes(outcomes: Sequence[Outcome]) -> bool:
    """Whether the outcomes are few and small enough to be written inline. `settle` reports invalid ones later."""
    if len(outcomes) > MAX_INLINE_JOBS:
        return False
    try:
        for outcome in outcomes:
            if outcome.trail and len(outcome.trail) > MAX_INLINE_BYTES:
                return False
            if isinstance(outcome, Ack):
                if outcome.result is not None and len(outcome.result) > MAX_INLINE_BYTES:
                    return False
            elif not isinstance(outcome, Fail):
                continue
            if outcome.spawn and not _are_small_jobs(outcome.spawn):
                return False
    except (AttributeError, TypeError):
        return False
    return True
