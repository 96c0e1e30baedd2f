"""The job record, and what a store returns about a job: plain immutable values, cheap to make.

A record is what the store keeps. The state of a job (`State`) is not a field of it: it follows from the record, its
lease and `now`, so that no background process has to run before a state is true.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from taskharbor.model.safe_repr import shows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for "not given" in `JobRecord.created_at`: the driver then notes the `now` of the enqueue."""

DEFAULT_QUEUE = "default"

OPERATIONS_QUEUE = "taskharbor"
"""The queue of core's own jobs, the slices of bulk operations. Every worker serves it beside its own queues."""


class State(StrEnum):
    """The state of a job. Members are strings: `State.READY == "ready"`."""

    BLOCKED = "blocked"
    """It waits for other jobs of its workflow."""
    SCHEDULED = "scheduled"
    """Its `run_at` has not come."""
    READY = "ready"
    """It may run as soon as a worker has a free slot."""
    INFLIGHT = "inflight"
    """A worker has it under a lease."""
    DONE = "done"
    """Its handler returned."""
    DLQ = "dlq"
    """It is dead: it failed for good, and waits in the dead letter queue for a person."""
    CANCELLED = "cancelled"
    """It was cancelled, from outside or by its handler."""

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended: only a requeue or a delete changes it."""
        return self in _TERMINAL


_TERMINAL = frozenset({State.DONE, State.DLQ, State.CANCELLED})


class FlowStatus(StrEnum):
    """The status of a whole flow."""

    RUNNING = "running"
    """It has jobs that have not ended, and none that is dead or cancelled."""
    SUCCEEDED = "succeeded"
    """All of its jobs are done."""
    FAILED = "failed"
    """One of its jobs is dead. What depends on that one is blocked until it is requeued."""
    CANCELLED = "cancelled"
    """One of its jobs was cancelled, and none is dead."""


# Payload, result, metadata, key and error text are the user's data: a log must not show them.
@shows("id", "type", "queue", "attempts", "deliveries")
class JobRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job as the store keeps it.

    >>> job = JobRecord(id="01J", type="email:send", payload=b'{"to": "ada"}')
    >>> job.queue, job.attempts, job.run_at
    ('default', 0, None)
    """

    id: str  # unique in the store; ids that the library makes sort by the time of their making
    type: str  # the name by which a worker finds the handler; for a task, its name
    queue: str = DEFAULT_QUEUE  # the queue it waits in
    # What every execution changes comes early: msgspec looks for a field's name from the front.
    deliveries: int = 0  # how often a worker took it
    lost: int = 0  # how often in a row a worker died, or lost its lease, while it had it
    began_at: datetime | None = None  # the newest reservation, also after its end
    ran_on: str = ""  # the worker of that reservation; `JobInfo.worker` is the one that has the lease now
    finished_at: datetime | None = None  # when it was done, dead or cancelled
    result: bytes | None = None  # what the handler returned, encoded; None if that was None
    payload: bytes = b"{}"  # the arguments, encoded
    run_at: datetime | None = None  # not before this moment; None: at once
    timeout: timedelta | None = None  # how long one execution may take
    priority: int = 0  # higher first
    attempts: int = 0  # failures that were recorded
    max_attempts: int = 0  # the failure that reaches this number is final; 0: the worker's default
    idempotency_key: str | None = None  # a second job with this key in the queue is not stored
    group: str | None = None  # jobs of a queue that share it start in order
    group_limit: int = 0  # how many of the group may run at once; 0: as the group has it, else 1
    depends_on: tuple[str, ...] = ()  # the jobs that must be done before it can start
    flow_id: str | None = None  # the workflow that it belongs to
    handed_to: str | None = None  # the last job of the workflow that took its place
    metadata: dict[str, str] = msgspec.field(default_factory=dict)  # your own text by name, and the library's
    last_error: str = ""  # class, text and frames of the last failure
    failed_at: datetime | None = None  # when it failed last
    reason: str = ""  # why it is dead or cancelled
    created_at: datetime = EPOCH  # when it was enqueued
    trail: bytes = b""  # earlier executions, written by core: see model/executions.py
    error_class: str = ""  # the class of the last recorded failure
    fingerprint: str = ""  # failures with the same one have the same cause, as far as can be seen
    note: bytes = b""  # the last progress that the handler reported, written by core
    edits: int = 0  # how often it was amended
    keep_for: timedelta | None = None  # how long it is kept after its end; None: as long as the store keeps jobs
    has_memos: bool = False  # whether its handler has saved steps that a later execution need not do again


class JobInfo(msgspec.Struct, frozen=True, gc=False):
    """A job as it is at one moment. `worker` and `lease_expires_at` are set while it is inflight."""

    job: JobRecord  # its record
    state: State  # its state at that moment
    worker: str = ""
    lease_expires_at: datetime | None = None
    waiting_for: tuple[str, ...] = ()  # the jobs that it depends on and that are not done


class Seen(msgspec.Struct, frozen=True):
    """What tells whether a job changed since it was read: a reservation, an amendment, an end or a requeue
    changes one of these.

    >>> Seen.of(JobInfo(JobRecord(id="01J", type="ping", deliveries=2), State.READY))
    Seen(deliveries=2, edits=0, finished_at=None)
    """

    deliveries: int
    edits: int = 0
    finished_at: datetime | None = None

    @classmethod
    def of(cls, info: JobInfo) -> Seen:
        """What was seen of a job that was read."""
        return cls(info.job.deliveries, info.job.edits, info.job.finished_at)


class Page(msgspec.Struct, frozen=True):
    """One page of a listing; `cursor` is None on the last one."""

    items: tuple[JobInfo, ...]
    cursor: str | None = None


class QueueHead(msgspec.Struct, frozen=True):
    """What comes next in a queue, and since when the job waits that has waited longest.

    Not known: it does not follow from the records that the driver looked at. Then the value is empty.
    """

    queue: str
    oldest_at: datetime | None = None  # since when the one that has been ready for longest is due; None: none is ready
    next: tuple[str, ...] = ()  # ids in the order in which a worker would get them, were the queue not paused
    oldest_known: bool = True
    next_known: bool = True

    def waited(self, now: datetime) -> timedelta | None:
        """How long the oldest ready job has waited; None if none is ready, or it is not known."""
        return None if self.oldest_at is None else max(now - self.oldest_at, timedelta())


class FlowInfo(msgspec.Struct, frozen=True):
    """A flow: its jobs and the edges (dependency, dependent) between them.

    In a listing of flows `nodes` and `edges` are empty, and `updated_at` is the `created_at` of its newest job.
    """

    id: str  # the `flow_id` of its jobs
    status: FlowStatus  # how it stands
    created_at: datetime  # when its first job was enqueued
    updated_at: datetime  # the latest enqueue, failure or end among its jobs
    nodes: tuple[JobInfo, ...]  # its jobs
    edges: tuple[tuple[str, str], ...]  # pairs of ids: the second waits for the first


class FlowPage(msgspec.Struct, frozen=True):
    """One page of a listing of flows; `cursor` is None on the last one."""

    items: tuple[FlowInfo, ...]
    cursor: str | None = None


class Figures(msgspec.Struct, frozen=True):
    """What happened in one queue in one minute: numbers by name, which stores add up.

    >>> Figures(EPOCH, "mail", {"done": 3, "failed": 1}).counts["done"]
    3
    """

    minute: datetime
    queue: str
    counts: dict[str, int]


class WorkerInfo(msgspec.Struct, frozen=True):
    """What a worker reports with its heartbeat, about twice a minute."""

    worker: str  # its id, unique for each process
    queues: tuple[str, ...]  # the queues it serves
    running: int  # how many jobs it runs
    started_at: datetime  # when it began
    concurrency: int = 0  # how many jobs it may run at once
    host: str = ""  # the name of its machine
    pid: int = 0  # its process
    seen_at: datetime = EPOCH  # when it sent this
    stuck: int = 0  # of those `running`: handlers that go on although their job was settled without them
    stopped_at: datetime | None = None  # when it stopped; `seen_at` is then dated back, so that `workers` leaves it out
    cut_off: tuple[
        tuple[str, int], ...
    ] = ()  # executions that it lost because no renewal reached the store: job, delivery


def replace(record: JobRecord, **changes: Any) -> JobRecord:
    """The record with some fields changed."""
    return msgspec.structs.replace(record, **changes)


def flow_status(states: list[State]) -> FlowStatus:
    """The status of a flow from the states of its jobs: failed wins over cancelled, cancelled over the rest."""
    if State.DLQ in states:
        return FlowStatus.FAILED
    if State.CANCELLED in states:
        return FlowStatus.CANCELLED
    return FlowStatus.SUCCEEDED if all(state is State.DONE for state in states) else FlowStatus.RUNNING


def flow_info(flow_id: str, nodes: tuple[JobInfo, ...]) -> FlowInfo:
    """A flow from its jobs, of which there is at least one.

    >>> flow_info("f1", (JobInfo(JobRecord(id="01J", type="ping"), State.DONE),)).status
    <FlowStatus.SUCCEEDED: 'succeeded'>
    """
    jobs = [node.job for node in nodes]
    times = [at for job in jobs for at in (job.created_at, job.failed_at, job.finished_at) if at is not None]
    return FlowInfo(
        flow_id,
        flow_status([node.state for node in nodes]),
        min(job.created_at for job in jobs),
        max(times),
        nodes,
        tuple((dependency, job.id) for job in jobs for dependency in job.depends_on),
    )
