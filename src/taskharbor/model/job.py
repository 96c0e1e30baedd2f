"""The job record, and what a store returns about a job: plain immutable values, cheap to make.

A record is what the store keeps. The state of a job (`State`) is not a field of it: it follows from the record, its
lease and `now`, so that no background process has to run before a state is true.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for "not given" in `JobRecord.created_at`: the driver then notes the `now` of the enqueue."""

DEFAULT_QUEUE = "default"

OPERATIONS_QUEUE = "taskharbor"
"""The queue of core's own jobs, the slices of bulk operations. Every worker serves it beside its own queues."""


class State(StrEnum):
    """The state of a job. Members are strings: `State.READY == "ready"`."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    READY = "ready"
    INFLIGHT = "inflight"
    DONE = "done"
    DLQ = "dlq"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended: only a requeue or a delete changes it."""
        return self in _TERMINAL


_TERMINAL = frozenset({State.DONE, State.DLQ, State.CANCELLED})


class FlowStatus(StrEnum):
    """The status of a whole flow."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job as the store keeps it.

    >>> job = JobRecord(id="01J", type="email:send", payload=b'{"to": "ada"}')
    >>> job.queue, job.attempts, job.run_at
    ('default', 0, None)
    """

    id: str
    type: str
    queue: str = DEFAULT_QUEUE
    # What every execution changes comes early: msgspec looks for a field's name from the front.
    deliveries: int = 0
    lost: int = 0
    began_at: datetime | None = None  # the newest reservation, also after its end
    ran_on: str = ""  # the worker of that reservation; `JobInfo.worker` is the one that has the lease now
    finished_at: datetime | None = None
    result: bytes | None = None
    payload: bytes = b"{}"
    run_at: datetime | None = None
    timeout: timedelta | None = None
    priority: int = 0
    attempts: int = 0
    max_attempts: int = 0
    idempotency_key: str | None = None
    group: str | None = None
    group_limit: int = 0
    depends_on: tuple[str, ...] = ()
    flow_id: str | None = None
    handed_to: str | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    last_error: str = ""
    failed_at: datetime | None = None
    reason: str = ""
    created_at: datetime = EPOCH
    trail: bytes = b""  # earlier executions, written by core: see model/attempts.py
    error_class: str = ""  # the class of the last recorded failure
    fingerprint: str = ""  # failures with the same one have the same cause, as far as can be seen
    note: bytes = b""  # the last progress that the handler reported, written by core
    edits: int = 0  # how often it was amended
    keep_for: timedelta | None = None  # how long it is kept after its end; None: as long as the store keeps jobs

    def __repr__(self) -> str:
        # Payload, result, metadata, key and error text are the user's data: a log must not show them.
        return (
            f"JobRecord(id={self.id!r}, type={self.type!r}, queue={self.queue!r}, attempts={self.attempts}, "
            f"deliveries={self.deliveries})"
        )


class JobInfo(msgspec.Struct, frozen=True, gc=False):
    """A job as it is at one moment. `worker` and `lease_expires_at` are set while it is inflight."""

    job: JobRecord
    state: State
    worker: str = ""
    lease_expires_at: datetime | None = None
    waiting_for: tuple[str, ...] = ()


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


class FlowInfo(msgspec.Struct, frozen=True):
    """A flow: its jobs and the edges (dependency, dependent) between them.

    In a listing of flows `nodes` and `edges` are empty, and `updated_at` is the `created_at` of its newest job.
    """

    id: str
    status: FlowStatus
    created_at: datetime
    updated_at: datetime
    nodes: tuple[JobInfo, ...]
    edges: tuple[tuple[str, str], ...]


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

    worker: str
    queues: tuple[str, ...]
    running: int
    started_at: datetime
    concurrency: int = 0
    host: str = ""
    pid: int = 0
    seen_at: datetime = EPOCH
    stuck: int = 0  # of those `running`: handlers that go on although their job was settled without them
    stopped_at: datetime | None = None  # when it stopped; `seen_at` is then dated back, so that `workers` leaves it out


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
