"""A job as an operator reads it: how often it ran, how long it waited and ran, how each execution ended, and its life
as a line of moments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.model.executions import Attempt, AttemptKind, known_executions
from taskharbor.model.job import JobInfo, State

MAX_EXECUTIONS = 8  # on the line: the first, and the newest
_NO_FAULT = (AttemptKind.SNOOZED, AttemptKind.GIVEN_BACK, AttemptKind.CANCELLED)


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
    found = known_executions(info)
    return found, max(0, info.job.deliveries - len(found))


def times_of(info: JobInfo, now: datetime) -> JobTimes:
    """How long a job waited and ran. Waiting begins when it is stored, due, or was given back by the execution before.

    A job that waits for others, and one that was requeued, counts that time as well: no store records when it ended.
    """
    found = known_executions(info)
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


@dataclass(frozen=True)
class TimelineStep:
    """One moment. `after`: how long after the step before it; `state` colours it."""

    name: str
    state: str
    at: datetime | None
    after: timedelta | None = None
    is_now: bool = False


def timeline_of(info: JobInfo, now: datetime) -> list[TimelineStep]:
    """The moments of a job, oldest first. The last one is how it stands now."""
    job = info.job
    steps: list[tuple[str, str, datetime | None]] = [("enqueued", "blocked", job.created_at)]
    if (
        job.run_at is not None
        and job.run_at > job.created_at
        and not job.attempts
        and info.state is not State.SCHEDULED
    ):
        steps.append(("due", "scheduled", job.run_at))
    found, missing = executions_of(info)
    shown = found if len(found) <= MAX_EXECUTIONS else [found[0], *found[1 - MAX_EXECUTIONS :]]
    left_out = missing + len(found) - len(shown)
    for place, each in enumerate(shown):
        if place == 1 and left_out:
            steps.append((f"{left_out} more", "blocked", None))
        steps.append((f"started #{each.number}", "inflight", each.began_at))
        if each.kind is not AttemptKind.RUNNING:
            state = "done" if each.kind is AttemptKind.DONE else "cancelled" if each.kind in _NO_FAULT else "dlq"
            steps.append((each.kind.value.replace("_", " "), state, each.ended_at))
    ended = bool(shown) and steps[-1][1] == "dlq"
    if info.state is State.DLQ and ended:
        steps[-1] = (f"{steps[-1][0]}: dead", "dlq", steps[-1][2])
    last = _standing(info, now, ended)
    if last is not None:
        steps.append(last)
    return _with_spans(steps, now, running=info.state is State.INFLIGHT)


def _standing(info: JobInfo, now: datetime, ended: bool) -> tuple[str, str, datetime | None] | None:
    """The last step, if the executions do not say it already."""
    job = info.job
    if info.state is State.INFLIGHT or info.state is State.DONE:
        return None
    if info.state is State.DLQ and ended:
        return None
    if info.state.terminal:
        return ("dead" if info.state is State.DLQ else "cancelled", info.state.value, job.finished_at)
    if info.state is State.SCHEDULED:
        return ("retry" if job.attempts else "due", "scheduled", job.run_at)
    return (info.state.value, info.state.value, now)


def _with_spans(steps: list[tuple[str, str, datetime | None]], now: datetime, *, running: bool) -> list[TimelineStep]:
    found: list[TimelineStep] = []
    before: datetime | None = None
    for place, (name, state, at) in enumerate(steps):
        after = None if at is None or before is None or at < before else at - before
        found.append(TimelineStep(name, state, at, after, place == len(steps) - 1 and not running))
        before = at or before
    if running and before is not None:
        found.append(TimelineStep("running", "inflight", now, max(now - before, timedelta()), True))
    return found
