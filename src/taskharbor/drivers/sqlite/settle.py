"""What becomes of a job that was reserved: its lease is extended or given back, or an outcome ends it. Each outcome is
checked whole before anything of it is written.

Nearly all outcomes are plain acks, and a run of them is one statement. Outcomes that it does not match are
settled one by one: the row is loaded, a refusal or a repeat is recognised, and flows and groups are updated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from taskharbor.drivers.refusals import LeaseCode, bad_notes, check_lease, lease_refusal, no_job
from taskharbor.drivers.sqlite.cascade import follow, strand
from taskharbor.drivers.sqlite.enqueue import heir_of, plan_of, store_jobs
from taskharbor.drivers.sqlite.records import BLOCKED, CANCELLED, DLQ, DONE, LEASED, JobRow, is_moment, maybe_us
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.store_clock import step_since
from taskharbor.drivers.sqlite.transitions import dependents_of, finish, hand_over, join, move_clock, release_dependents
from taskharbor.model.bounds import check_outcome, clean_error
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry
from taskharbor.model.times import from_us, to_us

ACK = statement("ack")
ACKED = statement("acked")
EXTEND = statement("extend")
LEASED_BY = statement("leased_by")
TOKEN_CHARACTERS = 32  # of a token that reserve makes

_encode = msgspec.json.Encoder().encode


def settle(
    session: WriteSession, outcomes: Sequence[Outcome], now: datetime, max_payload: int, stepped: int | None
) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one has its error in its place. `stepped`: of the reading of the
    store's clock from which `now` comes."""
    results: list[TaskHarborError | None] = []
    at = None  # `now` as the store sees it, which plain acks need not ask for
    while len(results) < len(outcomes):
        start = len(results)
        plain = _plain_acks(outcomes, start)
        acked = _ack_together(session, plain, to_us(now), stepped) if plain else plain
        if len(acked) == len(outcomes):
            return [None] * len(outcomes)
        at = at or now + step_since(session, stepped)
        for outcome in outcomes[start : start + max(len(plain), 1)]:
            done = outcome.lease.job_id in acked
            results.append(None if done else _settle_one(session, outcome, at, max_payload))
    return results


def _plain_acks(outcomes: Sequence[Outcome], start: int) -> dict[str, str]:
    """The plain acks that follow each other from `start` on, as ack.sql takes them: job id to token and result. Plain
    jobs have no edges, so their order does not matter."""
    plain: dict[str, str] = {}
    for index in range(start, len(outcomes)):
        outcome = outcomes[index]
        if type(outcome) is not Ack or outcome.spawn or outcome.trail or outcome.handover is not None:
            break
        lease, result = outcome.lease, outcome.result
        token = lease.token
        if lease.job_id in plain or type(token) is not str or len(token) != TOKEN_CHARACTERS:
            break
        if result is not None:
            text = _as_text(result)
            if text is None:
                break
            token = f"{token}={text}"
        plain[lease.job_id] = token
    return plain


def _as_text(result: bytes) -> str | None:
    """A result as text for a JSON parameter, or None. Nearly every one fits, since results are JSON themselves."""
    try:
        return result.decode() if type(result) is bytes and b"\0" not in result else None
    except UnicodeDecodeError:
        return None


def _ack_together(session: WriteSession, plain: dict[str, str], moment: int, stepped: int | None) -> Collection[str]:
    """Try plain acks in one statement; returns the ids of those that were applied."""
    try:
        given = {"now": moment, "stepped": stepped, "given": _encode(plain).decode()}
    except UnicodeEncodeError:  # an id or a token that cannot be stored, so no job has it
        return ()
    session.execute(ACK, given)
    if session.rows_changed() == len(plain):
        return plain
    session.execute(ACKED, given)
    return {id for (id,) in session.fetchall()}


def _settle_one(session: WriteSession, outcome: Outcome, now: datetime, max_payload: int) -> TaskHarborError | None:
    lease, moment = outcome.lease, to_us(now)
    job = session.load(lease.job_id)
    refused = refusal(job, lease, moment)
    if refused is not None:
        if job is not None and job.settled and job.settled == lease.token and job.settled_as == type(outcome).__name__:
            return None  # the same outcome was applied before, and its result was lost on the way
        return refused
    assert job is not None
    try:
        check_outcome(outcome, max_payload)
        _apply(session, job, outcome, now, moment)
    except InvalidJob as invalid:
        return invalid
    return None


def _apply(session: WriteSession, job: JobRow, outcome: Outcome, now: datetime, moment: int) -> None:
    if isinstance(outcome, Ack):
        _ack(session, job, outcome, now, moment)
    elif isinstance(outcome, Retry):
        _retry(session, job, outcome, moment)
    elif isinstance(outcome, Fail):
        _fail(session, job, outcome, now, moment)
    else:
        _note_settled(job, outcome)
        job.reason = job.last_error = clean_error(outcome.reason)
        job.lost = 0
        finish(session, job, CANCELLED, moment)
        follow(session, [job], moment)


def _note_settled(job: JobRow, outcome: Outcome) -> None:
    """So that the same outcome, sent again, is not refused. And the trail, which every kind may have."""
    job.settled, job.settled_as = outcome.lease.token, type(outcome).__name__
    job.trail = outcome.trail or job.trail


def _ack(session: WriteSession, job: JobRow, outcome: Ack, now: datetime, moment: int) -> None:
    """With a spawn the same as an ack and then an enqueue, except that no other call can come in between."""
    plan = plan_of(session, outcome.spawn)
    dependents = dependents_of(session, job) if outcome.handover is not None else []
    heir = heir_of(session, plan, outcome, dependents)
    _note_settled(job, outcome)
    job.result, job.lost, job.handed_to = outcome.result, 0, heir
    finish(session, job, DONE, moment)
    if heir is None:
        release_dependents(session, job, moment)
        store_jobs(session, plan.fresh.values(), now)
    else:
        store_jobs(session, plan.fresh.values(), now)
        new = session.load(heir)
        assert new is not None
        hand_over(session, job, dependents, new, moment)
        if new.state == CANCELLED and new.flow_id is not None:
            strand(session, [one for one in dependents if one.state == BLOCKED and one.flow_id == new.flow_id], moment)


def _retry(session: WriteSession, job: JobRow, outcome: Retry, moment: int) -> None:
    if outcome.attempts != job.attempts:  # otherwise it is given back, and no failure is recorded
        job.lost = 0
    _note_settled(job, outcome)
    job.run_at, job.attempts = maybe_us(outcome.run_at), outcome.attempts
    job.last_error = clean_error(outcome.last_error) or job.last_error
    job.error_class = outcome.error_class or job.error_class
    job.fingerprint = outcome.fingerprint or job.fingerprint
    job.failed_at = maybe_us(outcome.failed_at) if outcome.failed_at is not None else job.failed_at
    join(session, job, moment)
    session.save(job)


def _fail(session: WriteSession, job: JobRow, outcome: Fail, now: datetime, moment: int) -> None:
    plan = plan_of(session, outcome.spawn)
    _note_settled(job, outcome)
    job.reason = clean_error(outcome.reason)
    job.attempts, job.lost = outcome.attempts, 0
    job.failed_at = maybe_us(outcome.failed_at) if outcome.failed_at is not None else job.failed_at
    job.last_error = clean_error(outcome.last_error) or job.reason
    job.error_class, job.fingerprint = outcome.error_class or None, outcome.fingerprint or None
    finish(session, job, DLQ, moment)
    store_jobs(session, plan.fresh.values(), now)


# Leases that were granted


def refusal(job: JobRow | None, lease: Lease, now: int) -> DriverError | None:
    """Why a lease may not be extended or settled; None if it may."""
    if job is None:
        return no_job(lease.job_id)
    ends_at = from_us(job.moment) if job.moment is not None and is_moment(job.moment) else None
    return check_lease(lease, from_us(now), stored=True, inflight=job.state == LEASED, token=job.token, ends_at=ends_at)


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
    given = (until, note, lease.job_id, lease.token, moment)
    row = session.one(EXTEND, *given)
    if row is None:
        job = session.load(lease.job_id)
        refused = refusal(job, lease, moment)
        if refused is not None:
            return refused
        assert job is not None
        # A worker with a faster clock saw it expire; by this caller's clock it holds, and stays so.
        move_clock(session, session.queue(job.queue), moment)
        row = session.one(EXTEND, *given)
    queue, end = row
    if not is_moment(end):
        return lease_refusal(LeaseCode.EXPIRED, lease.job_id)
    return Lease(lease.job_id, queue, lease.token, from_us(end))


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
