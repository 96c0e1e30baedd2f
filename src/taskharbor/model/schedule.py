"""A schedule as a store keeps it, and how it changes.

A schedule is one row. A change names the revision that was read: it happens only if the row still has
that revision, together with the jobs that it stores. So of many workers that notice the same due schedule, one stores
its job, and no worker has to be the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.safe_repr import shows

MAX_SCHEDULE_BYTES = 128 * 1024
MAX_JOBS_OF_A_CHANGE = 1_000


@shows("name", "queue", "next_at", "revision")
class StoredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule. `body` is written by core; a driver never decodes it.

    `queue` is the queue of its jobs. `next_at`: from this moment on it is due; None: it never is. `revision` is a text
    that core makes for each version of the row, and that no other version of any row has.
    """

    name: str
    queue: str
    revision: str
    next_at: datetime | None = None
    body: bytes = b""


@shows("name")
class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a schedule, and the jobs to store with it.

    It happens if the stored row has the revision `expect`; None: if there is none. `to` takes its place; None deletes
    it. The jobs are of the queue `to.queue`, without dependencies, flow or idempotency key.
    """

    name: str
    expect: str | None
    to: StoredSchedule | None
    jobs: tuple[JobRecord, ...] = ()


class SchedulePage(msgspec.Struct, frozen=True):
    """One page of schedules; `cursor` is None on the last one.

    `upcoming`, of due schedules only: the earliest `next_at` behind `now` in the same queues, or None.
    """

    items: tuple[StoredSchedule, ...]
    cursor: str | None = None
    upcoming: datetime | None = None


SCHEDULE_KEY = "taskharbor.schedule"
"""The metadata of a scheduled job: the name of its schedule."""

SLOT_KEY = "taskharbor.slot"
"""The metadata of a scheduled job: the moment that it stands for."""


def slot_of(metadata: Mapping[str, str]) -> datetime | None:
    """The moment that a job stands for; None if no schedule made it, or another program wrote something else there.

    >>> slot_of({SLOT_KEY: "2030-01-01T02:30:00+00:00"})
    datetime.datetime(2030, 1, 1, 2, 30, tzinfo=datetime.timezone.utc)
    """
    text = metadata.get(SLOT_KEY)
    if text is None:
        return None
    try:
        slot = datetime.fromisoformat(text)
        return None if slot.tzinfo is None else slot.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def origin_of(metadata: Mapping[str, str]) -> dict[str, str]:
    """The entries that say which schedule made a job, for the jobs that take its place; empty if none did."""
    if SCHEDULE_KEY not in metadata:
        return {}
    return {key: metadata[key] for key in (SCHEDULE_KEY, SLOT_KEY) if key in metadata}
