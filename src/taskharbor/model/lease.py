"""Leases: the right to extend and settle a job, and until when."""

from __future__ import annotations

from datetime import datetime

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.safe_repr import shows


@shows("job_id", "queue", "expires_at")
class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to extend and settle one delivery of a job. Its token is the proof, so it never shows in a repr."""

    job_id: str
    queue: str
    token: str
    expires_at: datetime


class Lost(msgspec.Struct, frozen=True, gc=False):
    """An execution that ended without an outcome: its lease expired, or was given back for a dead worker.

    `cut_off`: its worker lives, but could not reach the store to renew the lease. Core knows that; drivers leave it.
    """

    worker: str
    began_at: datetime | None
    ended_at: datetime
    cut_off: bool = False


class Reserved(msgspec.Struct, frozen=True, gc=False):
    """One reservation: the job as it is now, and the lease on it. `lost_by`: the execution before, if it was lost."""

    job: JobRecord
    lease: Lease
    lost_by: Lost | None = None


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The result of enqueueing one job. `existed`: nothing was written, and `id` is that of the job already there."""

    id: str
    existed: bool
