"""The driver contract as a Protocol. docs/driver-contract.md is its text, `taskharbor.conformance` its proof.

Core decides, drivers store: a driver never computes a backoff, never decides that a job is dead, never reads the time
of day (except in `server_time`) and never decodes a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import FlowInfo, JobInfo, JobRecord, Page, QueueHead, State, WorkerInfo
from taskharbor.model.lease import Enqueued, Lease, Reserved
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry

DEFAULT_RETENTION = timedelta(hours=24)
WORKER_SILENCE = timedelta(minutes=1)
"""A worker whose last heartbeat is older is left out of `workers`."""
WORKER_FORGOTTEN_AFTER = 10 * WORKER_SILENCE
"""A worker whose last heartbeat is older is deleted by the next `beat`. Not sooner: a worker with a fast clock must not
forget one with a slow clock."""

CANCELLED_REASON = "cancelled"
FLOW_CANCELLED_REASON = "flow cancelled"
DAMAGED_PREFIX = "damaged record"
"""The reason of a damaged record in the dead letter queue begins with this."""


class Lifecycle(Protocol):
    """Coming and going."""

    @property
    def retention(self) -> timedelta:
        """How long done and cancelled records are kept before a worker prunes them."""

    async def open(self) -> None:
        """Connect, and create what an empty store lacks. Binds the driver to the running event loop."""

    async def close(self) -> None:
        """Close all connections. Closing twice, or before `open`, does nothing."""

    def sibling(self) -> Driver:
        """Another driver on the same store, not yet opened: for another event loop, thread or process."""

    async def server_time(self) -> datetime:
        """The store's clock: the only place where a driver reads one."""


class Queueing(Protocol):
    """Jobs on their way through a queue: the calls of producers and workers.

    A batch returns its results in the order of the call: one bad item never spoils the rest.
    """

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs, all or none. A known key or id writes nothing and returns the id of the job already there."""

    async def reserve(
        self, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str = ""
    ) -> list[Reserved]:
        """Take up to `limit` runnable jobs, each under a lease. Never blocks."""

    async def extend(
        self, leases: Sequence[Lease], now: datetime, lease_for: timedelta
    ) -> Sequence[Lease | TaskHarborError]:
        """Move the end of leases to `now + lease_for`, never earlier than it was."""

    async def settle(self, outcomes: Sequence[Outcome], now: datetime) -> list[TaskHarborError | None]:
        """Apply outcomes, each in a transaction, each fenced by its lease."""

    async def release(self, worker: str, now: datetime, keep: Sequence[str] = ()) -> int:
        """Give back at once what a dead worker has under valid leases, except the tokens in `keep`."""

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Return True as soon as work may have arrived, False after `timeout` seconds. Only a hint."""

    async def prune(self, before: datetime, limit: int) -> int:
        """Forget up to `limit` done and cancelled jobs that finished before a moment."""

    async def beat(self, info: WorkerInfo, now: datetime) -> None:
        """Note that a worker is alive."""

    # One job at a time: these raise an error instead of returning it (`SingleVerbs` implements them).

    async def ack(self, lease: Lease, now: datetime, result: bytes | None = None) -> None:
        """Settle one job as done."""

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

    async def extend_lease(self, lease: Lease, now: datetime, lease_for: timedelta) -> Lease:
        """Extend one lease."""


class Inspection(Protocol):
    """What is there: calls that change nothing."""

    async def inspect(self, id: str, now: datetime) -> JobInfo:
        """One job, or JobNotFound."""

    async def results(self, ids: Sequence[str]) -> dict[str, bytes | None]:
        """What each job that is done returned, by id, following `handed_to`; None: it returned None. Jobs that are not
        done, and ids without a record, are left out."""

    async def flow(self, flow_id: str, now: datetime) -> FlowInfo:
        """One flow, or JobNotFound."""

    async def counts(self, now: datetime) -> dict[str, dict[str, int]]:
        """How many jobs are in which state, by queue; zeros left out."""

    async def queues(self) -> list[str]:
        """The queues that hold a job or are paused, in the order of their names."""

    async def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""

    async def heads(self, queues: Sequence[str], now: datetime, n: int = 0) -> Sequence[QueueHead]:
        """For each of these queues the first `n` jobs that a worker would get, and since when the oldest one waits."""

    async def workers(self, now: datetime) -> list[WorkerInfo]:
        """The workers with a heartbeat in the last minute, in the order of their names."""

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
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Jobs in the order of their ids."""


class Administration(Protocol):
    """What an operator does with jobs and queues."""

    async def requeue(
        self, ids: Sequence[str], now: datetime, run_at: datetime | None = None, reset_attempts: bool = False
    ) -> list[DriverError | None]:
        """Bring dead and cancelled jobs back."""

    async def cancel(self, ids: Sequence[str], now: datetime) -> list[DriverError | None]:
        """Cancel what is not terminal."""

    async def cancel_flow(self, flow_id: str, now: datetime) -> int:
        """Cancel what is not terminal in a flow, and whatever is stored in it from now on."""

    async def delete(self, ids: Sequence[str]) -> list[DriverError | None]:
        """Forget jobs, in any state, that no unfinished job depends on."""

    async def pause(self, queue: str) -> None:
        """Stop new reservations from a queue."""

    async def resume(self, queue: str) -> None:
        """Allow reservations again."""


@runtime_checkable
class Driver(Lifecycle, Queueing, Inspection, Administration, Protocol):
    """A store for jobs: every verb that a driver must have. What it may have on top is in features.py."""


class ClientDriver(Inspection, Administration, Protocol):
    """The calls that a client makes: the part of `Driver` that blocking calls have to offer too."""

    async def open(self) -> None:
        """As in Lifecycle."""

    async def server_time(self) -> datetime:
        """As in Lifecycle."""

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """As in Queueing."""


def within_lease(lease_for: timedelta) -> float:
    """Seconds after which a driver gives up a reserve or an extend, if its own timeout is not sooner: a reply that
    comes when the lease is nearly over is useless, and there must be time for another try."""
    return max(lease_for.total_seconds() / 3, 2.0)


async def open_existing(driver: Driver) -> None:
    """Open a driver for a program that only reads: StoreMissing where there is no store yet, and nothing is created.

    A store of an older schema is refused as well, whatever its DSN says about upgrades. A driver whose `open` creates
    nothing needs no `open_existing` of its own. Not an isinstance check: that would miss the method of a driver that
    is wrapped in one that delegates with `__getattr__` (Python 3.12 and later), and create the store.
    """
    opens = getattr(driver, "open_existing", None)
    await (driver.open if opens is None else opens)()


def aborted(lease: Lease, why: str) -> str:
    """The text of the error that a handler gets if it uses a transaction that is over."""
    return (
        f"the transaction of job {lease.job_id} was rolled back, because {why}: "
        "nothing more can be read or written through it"
    )


class Transaction(Protocol):
    """One transaction on the store, for a handler's own writes: `async with transaction as connection`.

    Leaving the block does not commit. Core calls `commit` when the handler has returned, or `rollback`.
    """

    async def __aenter__(self) -> Any:
        """Begin, and return the connection."""

    async def __aexit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    async def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the Ack on the same connection and commit both. A refusal rolls both back and is returned; so is a
        commit that the store refuses for good, as TransactionFailed. After any other error, which is raised, it may
        have been committed or not."""

    async def rollback(self) -> None:
        """Undo everything and return the connection to its pool. Without effect when it has ended."""

    async def abort(self, why: str) -> None:
        """Undo everything now, though the handler still runs, and free every lock. If it has not begun, it never
        will. What the handler does with the connection later is refused with `why`. Without effect when it has
        ended."""


class TransactionSync(Protocol):
    """The same for a plain function: `with transaction as connection`. Calls other than `abort` never overlap, but may
    come from different threads: the handler's and another one for its end."""

    def __enter__(self) -> Any:
        """Begin, and return the connection."""

    def __exit__(self, *raised: object) -> None:
        """The handler's block has ended; the transaction stays open."""

    def commit(self, ack: Ack, now: datetime) -> TaskHarborError | None:
        """Apply the Ack on the same connection and commit both. A refusal rolls both back and is returned; so is a
        commit that the store refuses for good, as TransactionFailed. After any other error, which is raised, it may
        have been committed or not."""

    def rollback(self) -> None:
        """Undo everything and return the connection to its pool. Without effect when it has ended."""

    def abort(self, why: str) -> None:
        """Undo everything now, though the handler still runs in its own thread, and free every lock. If it has not
        begun, it never will. What the handler does with the connection later is refused with `why`. Without effect
        when it has ended. May be called from any thread at any moment."""


@runtime_checkable
class SqlDriver(Driver, Protocol):
    """What drivers on SQL stores offer on top: the caller's own transaction."""

    async def open_existing(self) -> None:
        """Open as `open` does, but create and upgrade nothing: StoreMissing where there is no schema."""

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """Store jobs on the caller's asynchronous connection, in the caller's transaction."""

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        """The same on a synchronous connection."""

    def transaction(self, lease: Lease) -> Transaction:
        """A connection whose writes commit together with the job's Ack, or not at all."""

    def transaction_sync(self, lease: Lease) -> TransactionSync:
        """The same for a plain function."""


class BlockingCalls(Protocol):
    """A driver's calls on the calling thread: without an event loop, and without a thread of their own.

    Any number of threads may call at once. It opens a bounded number of connections, and a call waits for a free one
    until its deadline. An interrupt (KeyboardInterrupt) may end a call between any two instructions: a connection that
    it leaves in the middle of an exchange is closed, never used again.
    """

    def until(self, deadline: float) -> ClientDriver:
        """The driver for one call of the client. Its coroutines never suspend: each does its own I/O before it
        returns, and raises BackendUnavailable when `time.monotonic()` reaches `deadline`."""

    def close(self) -> None:
        """Close every idle connection, and those in use when their call ends. Never waits; closing twice does
        nothing. A later call raises BackendUnavailable."""


class BlockingDriver(Protocol):
    """What a driver offers on top if its store can be called without an event loop.

    The class of a driver has to define `blocking` itself: a subclass that inherits it may have overridden calls in a
    way that suspends, so the client does not use it there.
    """

    def blocking(self) -> BlockingCalls | None:
        """New blocking calls on the same store, for this process; opens nothing yet. None: not with these options.

        The client asks once in each process, in a forked child for those of a `sibling()`, and never uses, closes or
        finalizes what its parent opened.
        """


class SingleVerbs:
    """The verbs for one job, on top of `settle` and `extend`: a driver inherits them and implements the batches only.

    Workers use the batches. These are for programs that have one job and want an exception if it is refused.
    """

    async def ack(self: Driver, lease: Lease, now: datetime, result: bytes | None = None) -> None:
        await _settle_one(self, Ack(lease, result), now)

    async def retry(
        self: Driver,
        lease: Lease,
        now: datetime,
        run_at: datetime | None = None,
        *,
        attempts: int,
        last_error: str = "",
        failed_at: datetime | None = None,
    ) -> None:
        await _settle_one(self, Retry(lease, run_at, attempts, last_error, failed_at), now)

    async def fail(
        self: Driver,
        lease: Lease,
        now: datetime,
        reason: str,
        *,
        attempts: int,
        failed_at: datetime | None = None,
        last_error: str = "",
    ) -> None:
        await _settle_one(self, Fail(lease, reason, attempts, failed_at or now, last_error), now)

    async def extend_lease(self: Driver, lease: Lease, now: datetime, lease_for: timedelta) -> Lease:
        (result,) = await self.extend([lease], now, lease_for)
        if isinstance(result, Lease):
            return result
        raise result


async def _settle_one(driver: Driver, outcome: Outcome, now: datetime) -> None:
    (refused,) = await driver.settle([outcome], now)
    if refused is not None:
        raise refused
