"""Leases that were granted: extending them, giving them back, and why one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.notes import bad_notes
from taskharbor.drivers.refusals import LeaseCode, lease_refusal
from taskharbor.drivers.sqlite.records import LEASED, JobRow, is_moment
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import join, move_clock
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_us, to_us

EXTEND = statement("extend")
EXTEND_WITH_NOTE = statement("extend_with_note")
LEASED_BY = statement("leased_by")


def refusal(job: JobRow | None, lease: Lease, now: int) -> DriverError | None:
    """Why a lease may not be extended or settled, in the order of the contract; None if it may."""
    if job is None:
        return lease_refusal(LeaseCode.NOT_FOUND, lease.job_id)
    if job.state != LEASED:
        return lease_refusal(LeaseCode.NOT_INFLIGHT, lease.job_id)
    if job.token != lease.token:
        return lease_refusal(LeaseCode.MISMATCH, lease.job_id)
    if job.moment is None or not is_moment(job.moment):
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id)
    if job.moment <= now:
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id, from_us(job.moment))
    return None


def extend(
    session: WriteSession,
    leases: Sequence[Lease],
    now: datetime,
    lease_for: timedelta,
    notes: Mapping[str, bytes] | None = None,
) -> list[Lease | TaskHarborError]:
    """Move the ends of leases, never to an earlier time, and store the notes of those that hold."""
    moment, until = to_us(now), to_us(now + lease_for)
    notes = notes or {}
    bad = bad_notes(leases, notes) if notes else {}
    return [
        bad.get(place) or _extend_one(session, lease, moment, until, notes.get(lease.token))
        for place, lease in enumerate(leases)
    ]


def _extend_one(
    session: WriteSession, lease: Lease, moment: int, until: int, note: bytes | None
) -> Lease | DriverError:
    row = _move_end(session, lease, moment, until, note)
    if row is None:
        job = session.load(lease.job_id)
        refused = refusal(job, lease, moment)
        if refused is not None:
            return refused
        assert job is not None
        # A worker with a faster clock saw it expire; by this caller's clock it holds, and stays so.
        move_clock(session, session.queue(job.queue), moment)
        row = _move_end(session, lease, moment, until, note)
    queue, end = row
    if not is_moment(end):
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id)
    return Lease(lease.job_id, queue, lease.token, from_us(end))


def _move_end(session: WriteSession, lease: Lease, moment: int, until: int, note: bytes | None) -> Any:
    """The queue and the new end of a lease that holds by the queue's clock, else None."""
    if note is None:
        return session.one(EXTEND, until, lease.job_id, lease.token, moment)
    return session.one(EXTEND_WITH_NOTE, until, note or None, lease.job_id, lease.token, moment)


def release(session: WriteSession, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order in which the jobs had joined their lines."""
    moment, kept = to_us(now), frozenset(keep)
    released = [job for row in session.all(LEASED_BY, moment, worker) if (job := JobRow(*row)).token not in kept]
    for job in released:
        if type(job.lost) is int:
            job.lost += 1
        job.run_at = None
        join(session, job, moment)
        job.lost_at = moment
        session.save(job)
    return len(released)
