"""The trail of a job: how an execution ended is added to it with the outcome, so that it costs no call.

    Retry, Fail, Cancelled   this execution becomes the last entry
    Ack                      no entry: the record itself tells of it
    any of them, after an execution that was lost (`Reserved.lost_by`): that one is added before it

An execution that is lost, and so is the next one, is added by neither: the numbers then have a gap.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from taskharbor.model.executions import Attempt, AttemptKind, read_trail, write_trail
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lost
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry

CUT_OFF = "no renewal reached the store, so its lease ended; its worker lived on"

OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def with_trail(
    job: JobRecord,
    outcome: OutcomeT,
    now: datetime,
    *,
    lost_by: Lost | None = None,
    timed_out: bool = False,
    snoozed: bool = False,
    why: str = "",
) -> OutcomeT:
    """The outcome with the trail of its job, as it reads after it.

    `timed_out`, `snoozed`: what the outcome alone does not show. `why`: why the job was given back. The error text is
    taken from the outcome, so what is masked there is masked here. A trail that cannot be written is left as it was:
    the outcome matters more.
    """
    try:
        entries = _lost(job, lost_by) + _ended(job, outcome, now, timed_out, snoozed, why)
        if not entries:
            return outcome
        earlier = [each for each in read_trail(job.trail) if each.number < entries[0].number]
        return replace(outcome, trail=write_trail([*earlier, *entries]))
    except Exception:  # a driver of another project may return fields of other types
        return outcome


def _lost(job: JobRecord, lost_by: Lost | None) -> list[Attempt]:
    if lost_by is None or job.deliveries < 2:
        return []
    return [
        Attempt(
            number=job.deliveries - 1,
            kind=AttemptKind.LOST,
            worker=lost_by.worker,
            began_at=lost_by.began_at,
            ended_at=lost_by.ended_at,
            error=CUT_OFF if lost_by.cut_off else "",
        )
    ]


def kind_of(job: JobRecord, outcome: Outcome, *, timed_out: bool = False, snoozed: bool = False) -> AttemptKind:
    """How the execution ended that an outcome settles."""
    if isinstance(outcome, Ack):
        return AttemptKind.DONE
    if isinstance(outcome, Cancelled):
        return AttemptKind.CANCELLED
    if isinstance(outcome, Fail) or outcome.attempts != job.attempts:
        return AttemptKind.TIMEOUT if timed_out else AttemptKind.FAILED
    return AttemptKind.SNOOZED if snoozed else AttemptKind.GIVEN_BACK


def _ended(job: JobRecord, outcome: Outcome, now: datetime, timed_out: bool, snoozed: bool, why: str) -> list[Attempt]:
    if isinstance(outcome, Ack):
        return []
    kind = kind_of(job, outcome, timed_out=timed_out, snoozed=snoozed)
    return [
        Attempt(
            number=job.deliveries,
            kind=kind,
            worker=job.ran_on,
            began_at=job.began_at,
            ended_at=now,
            error_class="" if isinstance(outcome, Cancelled) else outcome.error_class,
            error=_text(outcome, why if kind is AttemptKind.GIVEN_BACK else ""),
            fingerprint="" if isinstance(outcome, Cancelled) else outcome.fingerprint,
        )
    ]


def _text(outcome: Retry | Fail | Cancelled, why: str) -> str:
    if isinstance(outcome, Cancelled):
        return outcome.reason
    if isinstance(outcome, Fail):
        return outcome.last_error or outcome.reason
    return outcome.last_error or why
