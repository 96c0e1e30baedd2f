"""The driver contract as a class: every verb, and defaults for what a small store lacks.

docs/driver-contract.md is its text, `taskharbor.conformance` its proof. Core decides, drivers store: a driver never
computes a backoff, never decides that a job is dead, never reads the time of day (except in `server_time`) and never
decodes a payload.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from inspect import unwrap
from typing import Any, ClassVar

from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.drivers.cursor import decode_cursor, decode_due, decode_place, decode_schedule
from taskharbor.drivers.queries import (
    MAX_SCHEDULES_PER_PAGE,
    AuditQuery,
    DueQuery,
    FlowQuery,
    JobQuery,
    ScheduleQuery,
    check_page,
    is_newest_first,
    storable,
)
from taskharbor.drivers.transactions import Transaction, TransactionSync
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.bounds import check_moment
from taskharbor.model.errors import DriverError, FeatureMissing, TaskHarborError
from taskharbor.model.job import (
    Figures,
    FlowInfo,
    FlowPage,
    FlowStatus,
    JobInfo,
    JobRecord,
    Page,
    QueueHead,
    Seen,
    State,
    WorkerInfo,
)
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.memo import Memo
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry
from taskharbor.model.schedule import ScheduleChange, SchedulePage

DEFAULT_RETENTION = timedelta(hours=24)
FIGURES_KEPT_FOR = timedelta(hours=72)
WORKER_SILENCE = timedelta(minutes=1)
"""A worker whose last heartbeat is older is left out of `workers`."""
WORKER_FORGOTTEN_AFTER = 10 * WORKER_SILENCE
"""A worker whose last heartbeat is older is deleted by the next `beat`. Not sooner: a worker with a fast clock must not
forget one with a slow clock."""
MAX_SCANNED_JOBS = 10_000
"""`list` looks at no more jobs than this in one call: a page may then be short, or empty, and still have a cursor."""
MAX_SCANNED_FLOWS = 1_000
"""The same for `flows`."""
MAX_SCANNED_AUDIT = 10_000
"""The same for `audit`."""

CANCELLED_REASON = "cancelled"
FLOW_CANCELLED_REASON = "flow cancelled"
DEPENDENCY_CANCELLED_REASON = "a job that it depends on was cancelled"
MAX_FOLLOWED_JOBS = 1_000
"""How many jobs a call cancels, or brings back, behind those that it names; `prune` goes on with the rest."""
DAMAGED_PREFIX = "damaged record"
"""The reason of a damaged record in the dead letter queue begins with this."""

ATTEMPT_FIELDS = frozenset({"began_at", "ran_on", "trail", "error_class", "fingerprint", "note", "keep_for"})
"""Fields of a record that tell of its executions, for `Driver.unkept`."""
_OPTIONAL = {
    "heads": "heads",
    "upcoming": "upcoming",
    "amend": "amend",
    "flows": "list_flows",
    "figures": "figures",
    "audit": "list_audit",
    "schedules": "change_schedules",
    "steps": "save",
}  # what a driver may lack → the method that a driver which has it defines


class Driver:
    """A store for jobs. A driver defines the verbs that raise NotImplementedError here; the others have a default.

    A batch returns its results in the order of the call: one bad item never spoils the rest. An opened driver belongs
    to one event loop.
    """

    unkept: ClassVar[frozenset[str]] = frozenset()
    """Fields of a `JobRecord` that the store does not keep: none, or `ATTEMPT_FIELDS`."""

    @classmethod
    def lacks(cls) -> frozenset[str]:
        """The optional parts of the contract that this driver lacks: `heads`, `upcoming`, `amend`, `flows`,
        `figures`, `audit`, `schedules`, `steps`, and `attempts` if there are fields that it does not keep."""
        missing = {name for name, verb in _OPTIONAL.items() if unwrap(getattr(cls, verb)) is getattr(Driver, verb)}
        return frozenset(missing | ({"attempts"} if cls.unkept else set()))

    # Coming and going ----------------------------------------------------------------------------------------

    @property
    def retention(self) -> timedelta:
        """How long done and cancelled records are kept before a worker prunes them."""
        return DEFAULT_RETENTION

    async def open(self) -> None:
        """Connect, and create what an empty store lacks. Binds the driver to the running event loop."""
        raise NotImplementedError

    async def open_existing(self) -> None:
        """Open for a program that only reads: StoreMissing where there is no store yet, and nothing is created.

        A store of an older schema is refused as well, whatever its DSN says about upgrades. A driver whose `open`
        creates nothing needs no method of its own.
        """
        await self.open()

    async def close(self) -> None:
        """Close all connections. Closing twice, or before `open`, does nothing."""
        raise NotImplementedError

    def sibling(self) -> Driver:
        """Another driver on the same store, not yet opened: for another event loop, thread or process."""
        raise NotImplementedError

    async def server_time(self) -> datetime:
        """The store's clock: the only place where a driver reads one."""
        raise NotImplementedError

    def blocking(self) -> BlockingCalls | None:
        """New blocking calls on the same store, for this process; opens nothing yet. None: there are none.

        The client asks once in each process, in a forked child for those of a `sibling()`, and never uses, closes or
        finalizes what its parent opened. The class of a driver has to define `blocking` itself: a subclass that
        inherits it may have overridden calls in a way that suspends, so the client does not use it there.
        """
        return None

    # Jobs on their way through a queue -----------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs, all or none. A known key or id writes nothing and returns the id of the job already there."""
        raise NotImplementedError

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        """Take up to `limit` runnable jobs, each under a lease. Never blocks."""
        raise NotImplementedError

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta, notes: Mapping[str, bytes] | None = None
    ) -> Sequence[Lease | TaskHarborError]:
        """Move the end of leases to `now + lease_for`, never earlier than it was. Store the note of each whose token
        is in `notes`, if its lease holds; a driver that does not keep `note` ignores them."""
        raise NotImplementedError

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        """Apply outcomes, each in a transaction, each fenced by its lease."""
        raise NotImplementedError

    async def save(self, lease: Lease, name: str, value: bytes, now: datetime) -> None:
        """Store a memo of the job, in place of the one of that name. Raises what `extend` returns of a lease."""
        raise self.missing("a step")

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        """Give back at once what a dead worker has under valid leases, except the tokens in `keep`."""
        raise NotImplementedError

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Return True as soon as work may have arrived, False after `timeout` seconds. Only a hint."""
        raise NotImplementedError

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        """The earliest moment after `now` at which a reserve may return more although nothing is called in between;
        None if there is none, or if it is not known. Early is allowed, late is not."""
        return None

    def is_hinted(self) -> bool:
        """Whether `wait` ends for all that a reserve may return, also what falls due: idle workers then ask rarely."""
        return False

    def is_looking(self) -> bool:
        """Whether the worker of this driver is to look often for what sends no hint: new schedules and operations. Of
        several hinted workers one is."""
        return True

    async def prune(self, before: datetime, limit: int) -> int:
        """Forget up to `limit` done and cancelled jobs that finished before a moment."""
        raise NotImplementedError

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        """Note that a worker is alive."""
        raise NotImplementedError

    # One job at a time: these raise an error instead of returning it -------------------------------------------

    async def ack(self, lease: Lease, now: datetime, result: bytes | None = None) -> None:
        """Settle one job as done."""
        await self._settle_one(Ack(lease, result), now)

    async def retry(
        self,
        lease: Lease,
        now: datetime,
        run_at: datetime | None = None,
        *,
        attempts: int,
        last_error: str = "",
        failed_at: datetime | None = None,
    ) -> None:
        """Settle one job as to be run again."""
        await self._settle_one(Retry(lease, run_at, attempts, last_error, failed_at), now)

    async def fail(
        self,
        lease: Lease,
        now: datetime,
        reason: str,
        *,
        attempts: int,
        failed_at: datetime | None = None,
        last_error: str = "",
    ) -> None:
        """Settle one job as dead. `failed_at` None: `now`."""
        await self._settle_one(Fail(lease, reason, attempts, failed_at or now, last_error), now)

    async def extend_lease(self, lease: Lease, now: datetime, lease_for: timedelta) -> Lease:
        """Extend one lease."""
        (result,) = await self.extend([lease], now, lease_for)
        if isinstance(result, Lease):
            return result
        raise result

    async def _settle_one(self, outcome: Outcome, now: datetime) -> None:
        (refused,) = await self.settle([outcome], now)
        if refused is not None:
            raise refused

    # Reading: calls that change nothing ------------------------------------------------------------------------

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        """One job, or JobNotFound."""
        raise NotImplementedError

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """The result of each job that is done, by id, following `handed_to`; None: it returned None. Jobs that are not
        done, and ids without a record, are left out."""
        raise NotImplementedError

    async def steps(self, id: str) -> list[Memo]:
        """The memos of a job, in the order of `at`, then of names; empty if it has none, or is unknown."""
        return []

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        """One flow, or JobNotFound."""
        raise NotImplementedError

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        """How many jobs are in which state, by queue; zeros left out. With a cap, a driver may stop there: the number
        `cap` then stands for "that many or more"."""
        raise NotImplementedError

    async def queues(self) -> list[str]:
        """The queues that hold a job or are paused, in the order of their names."""
        raise NotImplementedError

    async def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""
        raise NotImplementedError

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> Sequence[QueueHead]:
        """For each of these queues the first `n` jobs that a worker would get, and since when the oldest one waits, or
        that it is not known."""
        return [QueueHead(queue, oldest_known=False, next_known=n == 0) for queue in queues]

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        """The workers with a heartbeat in the last minute, in the order of their names."""
        raise NotImplementedError

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
        return []

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        """The page that `wanted` describes: jobs in the order of their ids. `wanted.fits` and `wanted.shown` help a
        store that cannot filter by itself."""
        raise NotImplementedError

    async def list_flows(self, now: datetime, wanted: FlowQuery) -> FlowPage:
        """The page that `wanted` describes: flows in the order of their ids, without nodes and edges."""
        raise self.missing("a list of flows")

    async def list_audit(self, wanted: AuditQuery) -> AuditPage:
        """The page that `wanted` describes: entries in the order of `at`, then `id`, the last one first."""
        raise self.missing("the audit")

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        """The page that `wanted` describes: schedules in the order of their names."""
        return SchedulePage(())

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        """The page that `wanted` describes: schedules in the order of `next_at`, then of names."""
        return SchedulePage(())

    async def flows(
        self,
        *,
        now: datetime,
        status: FlowStatus | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "id",
        cursor: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Flows in the order of their ids, or with `order="-id"` the last id first."""
        check_page(limit, since, until)
        newest, after = is_newest_first(order), None if cursor is None else decode_cursor(cursor)
        known = None if status is None else FlowStatus(status)
        return await self.list_flows(now, FlowQuery(known, since, until, newest, after, limit))

    async def audit(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Entries with `since <= at < until`, in the order of `at`, then `id`, the last one first."""
        check_page(limit, since, until)
        after = None if cursor is None else decode_place(cursor)
        if by is not None and not storable((by,)):
            return AuditPage(())
        return await self.list_audit(AuditQuery(since, until, by, after, limit))

    async def schedules(
        self,
        *,
        names: Sequence[str] | None = None,
        queue: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SchedulePage:
        """Schedules in the order of their names."""
        check_page(limit)
        after = None if cursor is None else decode_schedule(cursor)
        asked = None if names is None else tuple(sorted(set(storable(names))))
        if asked == () or (queue is not None and not storable((queue,))):
            return SchedulePage(())
        return await self.list_schedules(ScheduleQuery(asked, queue, after, min(limit, MAX_SCHEDULES_PER_PAGE)))

    async def due_schedules(
        self, queues: Sequence[str], now: datetime, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Schedules of these queues with `next_at <= now`, in the order of `next_at`, then of names."""
        check_page(limit)
        check_moment(now, "now")
        after = None if cursor is None else decode_due(cursor)
        asked = tuple(dict.fromkeys(storable(queues)))
        if not asked:
            return SchedulePage(())
        return await self.list_due_schedules(DueQuery(asked, now, after, min(limit, MAX_SCHEDULES_PER_PAGE)))

    # Changes by operators and by code ---------------------------------------------------------------------------
    #
    # `seen` has an item for each id, in their order: a job that differs from its item is WrongState, and unchanged.

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        """Bring dead and cancelled jobs back."""
        raise NotImplementedError

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        """Cancel what is not terminal."""
        raise NotImplementedError

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        """Cancel what is not terminal in a flow, and whatever is stored in it from now on."""
        raise NotImplementedError

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        """Forget jobs, in any state, that no unfinished job depends on."""
        raise NotImplementedError

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        """Change jobs, each unless it is under a lease or done, or was reserved or amended since the editor saw it."""
        raise self.missing("amend")

    async def pause(self, queue: str) -> None:
        """Stop new reservations from a queue."""
        raise NotImplementedError

    async def resume(self, queue: str) -> None:
        """Allow reservations again."""
        raise NotImplementedError

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        """Add numbers to those of their minute and queue, and forget what is older than 72 hours."""

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        """Store entries, each in place of the one with the same id, and forget what is older than 90 days."""

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        """Apply changes, each in a transaction together with the jobs that it stores. For each: whether the store is
        now as the change says.

        False: the row has another revision. A change that was made before is True, and nothing happens again.
        """
        raise self.missing("a schedule")

    def missing(self, what: str) -> FeatureMissing:
        """The error for something that this store lacks."""
        return FeatureMissing(
            f"{what} needs a store that keeps it; {type(self).__name__} does not. "
            "The drivers of TaskHarbor do: memory, SQLite, PostgreSQL and Redis"
        )

    # Last, because it hides the type of the same name from the annotations that follow it.
    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        error_class: str | None = None,
        error_name: str | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "id",
        payloads: bool = True,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Jobs in the order of their ids, or with `order="-id"` the last id first."""
        check_page(limit, since, until)
        newest, after = is_newest_first(order), None if cursor is None else decode_cursor(cursor)
        known = None if state is None else State(state)
        wanted = JobQuery(
            queue, known, type, group, flow_id, after, limit, error_class, fingerprint, since, until, newest, payloads,
            error_name,
        )  # fmt: skip
        return await self.list_jobs(now, wanted)


class SqlDriver(Driver):
    """A driver on a SQL store, which can use the caller's own transaction."""

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs on the caller's asynchronous connection, in the caller's transaction."""
        raise NotImplementedError

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """The same on a synchronous connection."""
        raise NotImplementedError

    def on_connection(self, connection: Callable[[], Any], lock: AbstractContextManager[Any] | None = None) -> Driver:
        """A driver on one connection of a framework's, found anew for each call, which commits nothing by itself.
        `lock`: held during each call, if other threads use that connection."""
        raise NotImplementedError

    def transaction(self, lease: Lease) -> Transaction:
        """A connection whose writes commit together with the job's Ack, or not at all."""
        raise NotImplementedError

    def transaction_sync(self, lease: Lease) -> TransactionSync:
        """The same for a plain function."""
        raise NotImplementedError


def within_lease(lease_for: timedelta) -> float:
    """Seconds after which a driver gives up a reserve or an extend, if its own timeout is not sooner: a reply that
    comes when the lease is nearly over is useless, and there must be time for another try."""
    return max(lease_for.total_seconds() / 3, 2.0)
