"""A job as an operator reads it: how often it ran, how long it waited and ran, and how each execution ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.model.attempts import Attempt, AttemptKind, attempts_of
from taskharbor.model.job import JobInfo, State


@dataclass(frozen=True)
class JobTimes:
    """How long a job waited for a worker before its newest execution, and how long that took; None: not known."""

    waited: timedelta | None = None
    ran: timedelta | None = None


def tries_of(info: JobInfo) -> int:
    """How many attempts a job has used: those that failed, and the one that succeeded or is running."""
    return info.job.attempts + (info.state in (State.INFLIGHT, State.DONE))


def executions_of(info: JobInfo) -> tuple[list[Attempt], int]:
    """The executions that are known, oldest first, and how many there were of which nothing is known any more."""
    found = attempts_of(info)
    return found, max(0, info.job.deliveries - len(found))


def times_of(info: JobInfo, now: datetime) -> JobTimes:
    """How long a job waited and ran. Waiting begins when it is stored, due, or was given back by the execution before.

    A job that waits for others, and one that was requeued, counts that time as well: no store records when it ended.
    """
    found = attempts_of(info)
    job = info.job
    moments = [job.created_at, job.run_at, found[-2].ended_at if len(found) > 1 else None]
    could_start = max(moment for moment in moments if moment is not None)
    if not found:
        return JobTimes(now - could_start if info.state is State.READY and now > could_start else None)
    newest = found[-1]
    began = newest.began_at
    if began is None:
        return JobTimes()
    ended = now if newest.kind is AttemptKind.RUNNING else newest.ended_at
    return JobTimes(
        began - could_start if began >= could_start else None,  # else it is due again, later
        max(ended - began, timedelta()) if ended is not None else None,
    )
