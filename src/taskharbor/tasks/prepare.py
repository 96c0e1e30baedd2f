"""From a call to a job record, without I/O.

A call is bound and encoded where it is made. Its record is made when the store's time is known, because its id,
`created_at` and a delayed `run_at` depend on that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import round_up, to_ms
from taskharbor.tasks.options import Options, record_of
from taskharbor.tasks.signature import Signature


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
