"""The life of a job as a line of moments: enqueued, due, each execution, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.model.attempts import AttemptKind
from taskharbor.model.job import JobInfo, State
from taskharbor.ops.job_view import executions_of

MAX_EXECUTIONS = 8  # on the line: the first, and the newest


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


_NO_FAULT = (AttemptKind.SNOOZED, AttemptKind.GIVEN_BACK, AttemptKind.CANCELLED)


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
