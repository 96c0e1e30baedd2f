"""From a call to a job record, without I/O.

A call is bound and encoded where it is made. Its record is made when the store's time is known, because its id,
`created_at` and a delayed `run_at` depend on that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import round_up, to_ms
from taskharbor.policy.retry import DEFAULT_MAX_ATTEMPTS
from taskharbor.tasks.signature import Signature


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Checked options, as `prepare` needs them. `queue` None: the client's default queue."""

    name: str | None = None  # another job type than the task's own
    queue: str | None = None
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    group: str | None = None
    group_limit: int = 0
    metadata: dict[str, str] = {}
    connection: Any = None

    def __repr__(self) -> str:
        # A key, metadata and a connection are the user's data: only their names are shown.
        shown = (name for name in self.__struct_fields__ if getattr(self, name) != getattr(UNSET, name))
        return f"Options({', '.join(f'{name}=…' for name in shown)})"


UNSET = Options()


@shows("type", "options")
class TaskCall(msgspec.Struct, frozen=True):
    """One call of a task, to be enqueued: arguments encoded, options checked. `returns` is the type of its result;
    without a task there is no `signature`."""

    type: str
    payload: bytes
    options: Options
    returns: Any = Any
    id: str | None = None
    signature: Signature | None = None


def prepare(call: TaskCall, now: datetime, default_queue: str) -> JobRecord:
    """The record of a call made at `now`, in whole milliseconds: `run_at` is rounded up, never down."""
    options = call.options
    run_at = options.run_at
    if options.delay:
        run_at = round_up(now + options.delay)
    return record_of(
        options,
        id=call.id or new_id(to_ms(now)),
        type=call.type,
        payload=call.payload,
        queue=default_queue,
        created_at=now,
        run_at=run_at,
    )


def prepare_all(calls: Sequence[TaskCall], default_queue: str, now: datetime) -> list[JobRecord]:
    """The records of several calls, in the same order."""
    return [prepare(call, now, default_queue) for call in calls]


def record_of(
    options: Options, *, id: str, type: str, payload: bytes, queue: str, created_at: datetime, run_at: datetime | None
) -> JobRecord:
    """A record with these options."""
    metadata = options.metadata
    return JobRecord(
        id=id,
        type=type,
        queue=queue if options.queue is None else options.queue,
        payload=payload,
        run_at=run_at,
        timeout=options.timeout,
        priority=options.priority,
        max_attempts=options.max_attempts,
        idempotency_key=options.idempotency_key,
        group=options.group,
        group_limit=options.group_limit,
        metadata=dict(metadata) if metadata else {},
        created_at=created_at,
    )
