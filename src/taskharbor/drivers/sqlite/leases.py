"""Leases that were granted: extending them, giving them back, and why one is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers.sqlite.records import LEASED, JobRow, moment_of, ticks
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import join, move
from taskharbor.model.errors import DriverError, JobNotFound, JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.model.lease import Lease

EXTEND = statement("extend")
HELD_BY = statement("held_by")


def refusal(job: JobRow | None, lease: Lease, now: int) -> DriverError | None:
    """Why a lease may not be extended or settled, in the order of the contract; None if it may."""
    if job is None:
        return JobNotFound(f"no job {lease.job_id}")
    if job.state != LEASED:
        return JobNotInflight(f"job {lease.job_id} is not inflight")
    if job.token != lease.token:
        return LeaseMismatch(f"job {lease.job_id} was reserved again: another lease holds it")
    if job.moment is None or job.moment <= now:
        ended = moment_of(job.moment) if job.moment is not None else "an unknown time"
        return LeaseExpired(f"the lease on job {lease.job_id} ended at {ended}")
    return None


def extend(
    session: WriteSession, leases: Sequence[Lease], now: datetime, lease_for: timedelta
) -> list[Lease | DriverError]:
    """Move the ends of leases, never to an earlier moment."""
    moment = ticks(now)
    until = ticks(now + lease_for)
    answers: list[Lease | DriverError] = []
    for lease in leases:
        row = session.one(EXTEND, until, lease.job_id, lease.token, moment)
        if row is not None:
            answers.append(Lease(lease.job_id, row[0], lease.token, moment_of(row[1])))
            continue
        job = session.load(lease.job_id)
        refused = refusal(job, lease, moment)
        if refused is not None:
            answers.append(refused)
            continue
        assert job is not None
        # Somebody with a faster clock saw it expire; here it is held, and stays so.
        move(session, session.queue(job.queue), moment)
        row = session.one(EXTEND, until, lease.job_id, lease.token, moment)
        answers.append(Lease(lease.job_id, job.queue, lease.token, moment_of(row[1])))
    return answers


def release(session: WriteSession, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker holds under valid leases, in the order in which it had once joined the lines."""
    moment, kept = ticks(now), frozenset(keep)
    held = [job for row in session.all(HELD_BY, moment, worker) if (job := JobRow(*row)).token not in kept]
    for job in held:
        if type(job.lost) is int:
            job.lost += 1
        job.run_at = None
        join(session, job, moment)
        session.save(job)
    return len(held)
