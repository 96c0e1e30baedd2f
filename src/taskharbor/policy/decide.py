"""From how a handler failed to what is settled: the whole failure policy, as pure functions.

    (returned           → Ack: worker/decider.py)   raised Snooze        → Retry, no failure recorded
    raised anything     → Retry after the policy's delay, or Fail when attempts are used up
    raised RetryLater   → the same with its own delay     raised Unrecoverable → Fail now
    raised Cancel       → Cancelled                 crashed max_lost times → Fail "crashed N times"

`attempts` counts recorded failures. The failure that brings it to max_attempts is final.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from taskharbor.model.bounds import clean_error
from taskharbor.model.errors import Cancel, RetryLater, Snooze, Unrecoverable
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease
from taskharbor.model.naming import lineage
from taskharbor.model.outcome import Cancelled, Fail, Outcome, Retry
from taskharbor.model.refusal import Refusal
from taskharbor.model.safe_repr import shows
from taskharbor.model.times import Duration, duration, round_up
from taskharbor.policy.describe import blamed, describe, summary
from taskharbor.policy.fingerprint import CRASHED_CLASS, LOST_CLASS, Cause, cause_named, cause_of
from taskharbor.policy.losses import most_losses
from taskharbor.policy.retry import (
    DEFAULT_MAX_LOST,
    RETRY_KEY,
    UNRECOVERABLE_KEY,
    RetryPolicy,
    is_unrecoverable,
    read_retry,
)

POLICY_FAILED_DELAY = timedelta(seconds=60)


class Terms(msgspec.Struct, frozen=True):
    """What a worker decides failures by: the policy and the limits that apply to one handler."""

    retry: RetryPolicy
    max_attempts: int
    unrecoverable: tuple[type[BaseException], ...] = ()


def terms_of(job: JobRecord, declared: Terms, error: BaseException) -> tuple[Terms, BaseException | None]:
    """The terms for this failure: what the job carries in its metadata wins over what its task declared.

    Metadata that cannot be read (another program wrote it) is ignored; the error is returned as well.
    """
    retry, unrecoverable = job.metadata.get(RETRY_KEY), job.metadata.get(UNRECOVERABLE_KEY)
    try:
        policy = declared.retry if retry is None else read_retry(retry)
        if unrecoverable is None:
            return Terms(policy, declared.max_attempts, declared.unrecoverable), None
        # Only the names of types are stored, so only whether this error is of one of them can be known.
        final = (BaseException,) if is_unrecoverable(unrecoverable, error) else ()
        return Terms(policy, declared.max_attempts, final), None
    except Exception as problem:  # metadata may be nested so deeply that reading it is a RecursionError
        return declared, problem


@shows("outcome")
class Decision(msgspec.Struct, frozen=True):
    """What to settle, and what the retry policy raised if it did."""

    outcome: Outcome
    policy_error: BaseException | None = None


def on_error(
    job: JobRecord, lease: Lease, error: BaseException, terms: Terms, now: datetime, cause: Cause | None = None
) -> Decision:
    """What becomes of a job whose handler raised. `cause`: of the error, if it is known already."""
    # By the class alone, here and below: isinstance would believe an exception's own `__class__`.
    kind = type(error)
    if issubclass(kind, Snooze):
        return _snooze(job, lease, error, now)
    if issubclass(kind, Cancel):
        return Decision(Cancelled(lease, _reason(error, "cancelled by its handler")))
    attempts = job.attempts + 1
    limit = job.max_attempts or terms.max_attempts
    blame = blamed(error)
    text = describe(blame)
    cause = cause or cause_of(job.type, blame)

    def dead(reason: str) -> Fail:
        return Fail(lease, reason, attempts, now, text, (), cause.error_class, cause.fingerprint)

    if issubclass(kind, Unrecoverable):
        return Decision(dead(_reason(error, "unrecoverable")))
    final, problem = _is_one_of(terms.unrecoverable, error)
    if final:
        return Decision(dead(clean_error(f"unrecoverable {summary(error)}")))
    if attempts >= limit:
        return Decision(dead(f"failed {attempts} of {limit} attempts"), problem)
    delay, policy_error = _delay(error, attempts, terms.retry)
    if delay is None:
        return Decision(dead(f"its retry policy gave up after attempt {attempts}"), problem)
    again = Retry(lease, after(now, delay), attempts, text, now, cause.error_class, cause.fingerprint)
    return Decision(again, policy_error or problem)


def refuse(job: JobRecord, lease: Lease, reason: str, now: datetime, cause: Cause | None = None) -> Fail:
    """An unrecoverable failure that core itself found, such as a payload that does not fit the handler."""
    known = cause or cause_of(job.type, Refusal(reason))
    return Fail(lease, clean_error(reason), job.attempts + 1, now, "", (), known.error_class, known.fingerprint)


def crashed(job: JobRecord, lease: Lease, now: datetime, max_lost: int = DEFAULT_MAX_LOST) -> Fail:
    """The end of a job that crashed its worker too often: no attempt is counted, because none was reported."""
    at_ceiling = job.lost >= most_losses(max_lost)  # not all of these were crashes
    known = cause_named(job.type, LOST_CLASS if at_ceiling else CRASHED_CLASS)
    reason = f"its lease ended {job.lost} times without an outcome" if at_ceiling else f"crashed {job.lost} times"
    return Fail(lease, reason, job.attempts, now, "", (), known.error_class, known.fingerprint)


def give_back(job: JobRecord, lease: Lease, run_at: datetime | None = None) -> Retry:
    """Back to the queue with nothing recorded."""
    return Retry(lease, run_at, job.attempts)


def after(now: datetime, delay: timedelta) -> datetime | None:
    """The `run_at` after a delay; None (at once) for no delay. At most the year 9999."""
    if not delay:
        return None
    try:
        return round_up(now + delay)
    except OverflowError:
        return datetime.max.replace(microsecond=0, tzinfo=now.tzinfo)


def _is_one_of(kinds: tuple[type[BaseException], ...], error: BaseException) -> tuple[bool, BaseException | None]:
    """Whether the error is of one of these types, and the error of checking that, if there was one.

    A metaclass may define `__instancecheck__`, and that may raise; then the class alone decides.
    """
    if not kinds:
        return False, None
    try:
        return isinstance(error, kinds), None
    except BaseException as problem:
        return any(kind is each for kind in kinds for each in lineage(type(error))), problem


def _reason(signal: BaseException, default: str) -> str:
    """The handler's reason as text: it may be any object, or missing in a subclass with its own `__init__`.

    Every store refuses a reason that is not text; the job would then run again and again.
    """
    try:
        return clean_error(str(signal.reason)) or default  # type: ignore[attr-defined]  # see above
    except BaseException:
        return default


def _snooze(job: JobRecord, lease: Lease, error: BaseException, now: datetime) -> Decision:
    try:
        delay = duration(error.delay, "Snooze delay")  # type: ignore[attr-defined]  # checked just here
    except BaseException as problem:  # also a subclass that has no delay
        return Decision(Retry(lease, after(now, POLICY_FAILED_DELAY), job.attempts), problem)
    return Decision(Retry(lease, after(now, delay), job.attempts))


def _delay(error: BaseException, attempts: int, policy: RetryPolicy) -> tuple[timedelta | None, BaseException | None]:
    """The delay before the next attempt: a minute if the policy raises or returns nonsense."""
    try:
        own = issubclass(type(error), RetryLater)
        given: Duration | None = error.delay if own else None  # type: ignore[attr-defined]  # a subclass may have none
        if given is None:
            given = policy(attempts, error)
        return (None, None) if given is None else (duration(given, "retry delay"), None)
    except BaseException as problem:
        return POLICY_FAILED_DELAY, problem
