"""Outcomes: what becomes of a job that was reserved. Each is checked whole before anything of it is written.

A plain ack, as nearly all are, is one statement. What that statement does not find takes the long way: the row is
loaded, the refusal or the repeat is told, and flows and groups are looked after.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from taskharbor.drivers.graph import no_heir, own_heir
from taskharbor.drivers.sqlite.enqueue import Plan, carry_out, last_of, plan, refuse_handover
from taskharbor.drivers.sqlite.flows import dependents, hand_over, release_dependents
from taskharbor.drivers.sqlite.leases import refusal
from taskharbor.drivers.sqlite.records import CANCELLED, DLQ, DONE, JobRow, maybe_ticks, ticks
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import finish, join
from taskharbor.model.bounds import check_moment, check_number, check_spawn, clean_error
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry

ACK = statement("ack")
ACKED = statement("acked")
TOKEN = 32  # characters of the tokens that reserve makes

_encode = msgspec.json.Encoder().encode


def settle(
    session: WriteSession, outcomes: Sequence[Outcome], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one is answered in its place."""
    moment = ticks(now)
    answers: list[TaskHarborError | None] = []
    while len(answers) < len(outcomes):
        start = len(answers)
        run = _plain_run(outcomes, start)
        acked = _ack_together(session, run, moment) if run else run
        if len(acked) == len(outcomes):
            return [None] * len(outcomes)
        for outcome in outcomes[start : start + max(len(run), 1)]:
            done = outcome.lease.job_id in acked
            answers.append(None if done else _settle(session, outcome, now, moment, max_payload))
    return answers


def _plain_run(outcomes: Sequence[Outcome], start: int) -> dict[str, str]:
    """The plain acks that follow each other from here on, as ack.sql takes them: job id to token and result. A plain
    job has no ties, so these may change places."""
    run: dict[str, str] = {}
    for index in range(start, len(outcomes)):
        outcome = outcomes[index]
        if type(outcome) is not Ack or outcome.spawn or outcome.handover is not None:
            break
        lease, result = outcome.lease, outcome.result
        token = lease.token
        if lease.job_id in run or type(token) is not str or len(token) != TOKEN:
            break
        if result is not None:
            text = _as_text(result)
            if text is None:
                break
            token = f"{token}={text}"
        run[lease.job_id] = token
    return run


def _as_text(result: bytes) -> str | None:
    """A result as it can travel in JSON: nearly every one, since results are JSON themselves."""
    try:
        return result.decode() if type(result) is bytes and b"\0" not in result else None
    except UnicodeDecodeError:
        return None


def _ack_together(session: WriteSession, run: dict[str, str], moment: int) -> Collection[str]:
    """Try plain acks in one statement; answers the ids of those that were applied."""
    try:
        given = {"now": moment, "given": _encode(run).decode()}
    except UnicodeEncodeError:  # an id or a token that nobody can have been given
        return ()
    session.execute(ACK, given)
    if session.changed() == len(run):
        return run
    session.execute(ACKED, given)
    return {id for (id,) in session.fetchall()}


def _settle(
    session: WriteSession, outcome: Outcome, now: datetime, moment: int, max_payload: int
) -> TaskHarborError | None:
    lease = outcome.lease
    job = session.load(lease.job_id)
    refused = refusal(job, lease, moment)
    if refused is not None:
        if job is not None and job.settled and job.settled == lease.token and job.settled_as == type(outcome).__name__:
            return None
        return refused
    assert job is not None
    try:
        _apply(session, job, outcome, now, moment, max_payload)
    except InvalidJob as invalid:
        return invalid
    return None


def _apply(session: WriteSession, job: JobRow, outcome: Outcome, now: datetime, moment: int, max_payload: int) -> None:
    token, kind = outcome.lease.token, type(outcome).__name__
    if type(outcome) is Ack:
        _ack(session, job, outcome, now, moment, max_payload)
    elif type(outcome) is Retry:
        _retry(session, job, outcome, moment)
    elif type(outcome) is Fail:
        _fail(session, job, outcome, now, moment, max_payload)
    elif type(outcome) is Cancelled:
        job.settled, job.settled_as = token, kind
        job.reason = job.last_error = clean_error(outcome.reason)
        job.lost = 0
        finish(session, job, CANCELLED, moment)
    else:
        raise InvalidJob(f"outcome: expected Ack, Retry, Fail or Cancelled, got {type(outcome).__name__}")


def _ack(session: WriteSession, job: JobRow, outcome: Ack, now: datetime, moment: int, max_payload: int) -> None:
    """With a spawn the same as an ack and then an enqueue, except that nobody can look in between."""
    if outcome.result is not None and type(outcome.result) is not bytes:
        raise InvalidJob(f"result: expected bytes or None, got {type(outcome.result).__name__}; encode it with a codec")
    made = _planned(session, outcome.spawn, max_payload)
    waiting = dependents(session, job) if outcome.handover is not None else []
    heir = _heir(session, made, job, outcome, waiting)
    job.settled, job.settled_as = outcome.lease.token, "Ack"
    job.result, job.lost, job.handed_to = outcome.result, 0, heir
    finish(session, job, DONE, moment)
    if heir is None:
        release_dependents(session, job, moment)
        carry_out(session, made, now)
    else:
        carry_out(session, made, now)
        new = session.load(heir)
        assert new is not None
        hand_over(session, job, waiting, new, moment)


def _heir(session: WriteSession, made: Plan, job: JobRow, outcome: Ack, waiting: Sequence[JobRow]) -> str | None:
    """The stored id of the job that takes over, or InvalidJob."""
    if outcome.handover is None:
        return None
    spawned = {record.id: answer.id for record, answer in zip(outcome.spawn, made.answers, strict=True)}
    heir = spawned.get(outcome.handover)
    if heir is None or heir == job.id:
        raise no_heir(outcome.handover)
    if heir not in made.fresh:
        heir = last_of(session, heir) or heir
        if heir == job.id:
            raise own_heir(outcome.handover, heir)
    if waiting:
        refuse_handover(session, made, heir, waiting)
    return heir


def _retry(session: WriteSession, job: JobRow, outcome: Retry, moment: int) -> None:
    _check_failure(outcome)
    if outcome.run_at is not None:
        check_moment(outcome.run_at, "run_at")
    if outcome.attempts != job.attempts:  # else it is given back, and no failure is recorded
        job.lost = 0
    job.settled, job.settled_as = outcome.lease.token, "Retry"
    job.run_at, job.attempts = maybe_ticks(outcome.run_at), outcome.attempts
    job.last_error = clean_error(outcome.last_error) or job.last_error
    job.failed_at = maybe_ticks(outcome.failed_at) if outcome.failed_at is not None else job.failed_at
    join(session, job, moment)
    session.save(job)


def _fail(session: WriteSession, job: JobRow, outcome: Fail, now: datetime, moment: int, max_payload: int) -> None:
    _check_failure(outcome)
    made = _planned(session, outcome.spawn, max_payload)
    job.settled, job.settled_as = outcome.lease.token, "Fail"
    job.reason = clean_error(outcome.reason)
    job.attempts, job.lost = outcome.attempts, 0
    job.failed_at = maybe_ticks(outcome.failed_at) if outcome.failed_at is not None else job.failed_at
    job.last_error = clean_error(outcome.last_error) or job.reason
    finish(session, job, DLQ, moment)
    carry_out(session, made, now)


def _planned(session: WriteSession, spawn: Sequence[JobRecord], max_payload: int) -> Plan:
    check_spawn(spawn)
    return plan(session, spawn, max_payload)


def _check_failure(outcome: Retry | Fail) -> None:
    check_number(outcome.attempts, "attempts", 0)
    if outcome.failed_at is not None:
        check_moment(outcome.failed_at, "failed_at")
