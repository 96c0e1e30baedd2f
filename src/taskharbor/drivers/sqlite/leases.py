"""Leases that were granted: extending them, giving them back, and why one is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers.refusals import LeaseCode, lease_refusal
from taskharbor.drivers.sqlite.records import LEASED, JobRow
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import join, move_clock
from taskharbor.model.errors import DriverError
from taskharbor.model.lease import Lease
from taskharbor.model.times import from_us, to_us

EXTEND = statement("extend")
LEASED_BY = statement("leased_by")


def refusal(job: JobRow | None, lease: Lease, now: int) -> DriverError | None:
    """Why a lease may not be extended or settled, in the order of the contract; None if it may."""
    if job is None:
        return lease_refusal(LeaseCode.NOT_FOUND, lease.job_id)
    if job.state != LEASED:
        return lease_refusal(LeaseCode.NOT_INFLIGHT, lease.job_id)
    if job.token != lease.token:
        return lease_refusal(LeaseCode.MISMATCH, lease.job_id)
    if job.moment is None or job.moment <= now:
        ended_at = None if job.moment is None else from_us(job.moment)
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id, ended_at)
    return None


def extend(
    session: WriteSession, leases: Sequence[Lease], now: datetime, lease_for: timedelta
) -> list[Lease | DriverError]:
    """Move the ends of leases, never to an earlier time."""
    moment = to_us(now)
    until = to_us(now + lease_for)
    results: list[Lease | DriverError] = []
    for lease in leases:
        row = session.one(EXTEND, until, lease.job_id, lease.token, moment)
        if row is not None:
            queue, end = row
            results.append(Lease(lease.job_id, queue, lease.token, from_us(end)))
            continue
        job = session.load(lease.job_id)
        refused = refusal(job, lease, moment)
        if refused is not None:
            results.append(refused)
            continue
        assert job is not None
        # A worker with a faster clock saw it expire; by this caller's clock it holds, and stays so.
        move_clock(session, session.queue(job.queue), moment)
        queue, end = session.one(EXTEND, until, lease.job_id, lease.token, moment)
        results.append(Lease(lease.job_id, queue, lease.token, from_us(end)))
    return results


def release(session: WriteSession, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order in which the jobs had joined their lines."""
    moment, kept = to_us(now), frozenset(keep)
    released = [job for row in session.all(LEASED_BY, moment, worker) if (job := JobRow(*row)).token not in kept]
    for job in released:
        if type(job.lost) is int:
            job.lost += 1
        job.run_at = None
        join(session, job, moment)
        session.save(job)
    return len(released)
