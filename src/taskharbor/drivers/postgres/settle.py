"""Outcomes as programs: plain ones in batches of one statement, those that spawn each in a transaction of its own.

A statement over several jobs waits for none of them: one that somebody else has locked at that moment (an open
transaction that depends on it, an extend on its way) is left as it is and answered as locked, for whoever runs the
program to send again. In a transaction that a single job owns there is nobody to hold up, and it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.graph import no_heir, own_heir
from taskharbor.drivers.postgres.enqueue import enqueue
from taskharbor.drivers.postgres.lock_retry import JobLocked
from taskharbor.drivers.postgres.records import (
    ACK,
    CANCEL,
    FAIL,
    RETRY,
    RefusalCode,
    base64_of,
    micros,
    moment_of,
    to_json,
)
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, quoted, value
from taskharbor.model.bounds import check_job, check_moment, check_number, check_spawn, clean_error
from taskharbor.model.errors import (
    DriverError,
    InvalidJob,
    JobNotFound,
    JobNotInflight,
    LeaseExpired,
    LeaseMismatch,
    TaskHarborError,
)
from taskharbor.model.lease import Lease
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.safe_repr import shown

_KINDS: dict[type, int] = {Ack: ACK, Retry: RETRY, Fail: FAIL, Cancelled: CANCEL}
_APPLIED_BEFORE, _HOLDS, _LOCKED = RefusalCode.ALREADY_APPLIED, RefusalCode.HOLDS, RefusalCode.IS_LOCKED


class OutcomeRow(msgspec.Struct, omit_defaults=True, gc=False):
    """One outcome on its way into the store."""

    o: int
    id: str
    token: str
    was: int
    kind: int = 0
    result: bytes | None = None
    run_at: int | None = None
    attempts: int | None = None
    last_error: str | None = None
    failed_at: int | None = None
    reason: str | None = None

    def __repr__(self) -> str:
        return shown(self, "id", "kind")


def plain(outcome: Outcome) -> bool:
    """Whether it can share a statement with others."""
    return not getattr(outcome, "spawn", ()) and getattr(outcome, "handover", None) is None


def runs(outcomes: Sequence[Outcome]) -> Iterator[list[int]]:
    """The places of outcomes that can be sent together: in order, each job once, one that spawns by itself."""
    batch: list[int] = []
    seen: set[str] = set()
    for place, outcome in enumerate(outcomes):
        alone = not plain(outcome)
        if batch and (alone or outcome.lease.job_id in seen):
            yield batch
            batch, seen = [], set()
        if alone:
            yield [place]
        else:
            batch.append(place)
            seen.add(outcome.lease.job_id)
    if batch:
        yield batch


def settle_alone(schema: str, outcome: Outcome, now: datetime) -> Program[TaskHarborError | None]:
    """Settle one plain outcome in a transaction of its own, waiting for its job."""
    while True:
        (answer,), _ = yield from settle_plain(schema, [outcome], now)
        if not isinstance(answer, JobLocked):
            return answer
        yield Statement(f"select 1 from {quoted(schema)}.jobs where id = ? for update", (outcome.lease.job_id,))


def settle_plain(
    schema: str, outcomes: Sequence[Outcome], now: datetime, *, release: bool = True
) -> Program[tuple[list[TaskHarborError | None], set[int]]]:
    """Settle a run of plain outcomes; the answers, and the places of what was applied by an earlier call."""
    answers: list[TaskHarborError | None] = [None] * len(outcomes)
    left: Sequence[int] = range(len(outcomes))
    acks = _acks(schema, outcomes, now) if release else None
    if acks is not None:
        rows = yield acks
        if rows[0][0] is None:
            return answers, set()
        left = [int(place) for place in rows[0][0].split(",")]
    before = yield from _settle(schema, outcomes, left, now, release, answers)
    return answers, before


def _acks(schema: str, outcomes: Sequence[Outcome], now: datetime) -> Statement | None:
    """The statement for outcomes that are all acks, if these are, and nothing in them is out of the ordinary."""
    ids, tokens, results = list[str](), list[str](), list[str]()
    for outcome in outcomes:
        if type(outcome) is not Ack:
            return None
        lease, result = outcome.lease, outcome.result
        if result is not None and type(result) is not bytes:
            return None
        ids.append(lease.job_id)
        tokens.append(lease.token)
        results.append("-" if result is None else " " + base64_of(result))  # so that an empty one is there as well
    given, proofs = "\n".join(ids), ",".join(tokens)
    if given.count("\n") + 1 != len(ids) or proofs.count(",") + 1 != len(ids) or not all(ids) or not all(tokens):
        return None
    said = ",".join(results) if any(result != "-" for result in results) else None
    return value(schema, "ack", (given, "text"), (proofs, "text"), (said, "text"), (micros(now), "bigint"))


def _settle(
    schema: str,
    outcomes: Sequence[Outcome],
    places: Sequence[int],
    now: datetime,
    release: bool,
    answers: list[TaskHarborError | None],
) -> Program[set[int]]:
    """Settle the outcomes at these places, whatever kind they are of."""
    invalid: dict[int, InvalidJob] = {}
    given = []
    for place in places:
        outcome = outcomes[place]
        try:
            given.append(_given(place, outcome))
        except InvalidJob as error:
            invalid[place] = error
            lease = outcome.lease
            given.append(OutcomeRow(place, lease.job_id, lease.token, _KINDS.get(type(outcome), -1)))
    rows = yield _settle_statement(schema, given, now, release)
    before: set[int] = set()
    for place, code, ends in rows:
        id = outcomes[place].lease.job_id
        if code == _APPLIED_BEFORE:
            before.add(place)
        elif code == _HOLDS:
            answers[place] = invalid.get(place) or JobNotInflight(f"job {id} is not inflight")
        elif code == _LOCKED:
            answers[place] = JobLocked.job(id)
        else:
            answers[place] = refusal(code, id, ends)
    return before


def _settle_statement(schema: str, given: Sequence[OutcomeRow], now: datetime, release: bool) -> Statement:
    return call(
        schema,
        "settle",
        (to_json(given), "text"),
        (micros(now), "bigint"),
        (release, "boolean"),
        columns="o, code, ends",
    )


def spawn_alone(schema: str, outcome: Ack, now: datetime, max_payload: int) -> Program[TaskHarborError | None]:
    """Settle one outcome that spawns in a transaction of its own, waiting for whatever is locked. Nothing of ours is
    held meanwhile: two who waited for each other's jobs would wait for ever."""
    while True:
        yield Statement("savepoint taskharbor_ack")
        answer = yield from settle_spawning(schema, outcome, now, max_payload)
        if not isinstance(answer, JobLocked):
            return answer
        yield Statement("rollback to savepoint taskharbor_ack")
        waited = f"select 1 from {quoted(schema)}.jobs where id = ? for {'update' if answer.is_own else 'key share'}"
        yield Statement(waited, (answer.id,))
        yield Statement("rollback to savepoint taskharbor_ack")


def settle_spawning(
    schema: str, outcome: Ack | Fail, now: datetime, max_payload: int
) -> Program[TaskHarborError | None]:
    """Settle one outcome that spawns. Whoever runs it rolls back if the answer is an error."""
    own = outcome.lease.job_id
    handover = outcome.handover if isinstance(outcome, Ack) else None
    rows = yield Statement(f"select 1 from {quoted(schema)}.jobs where id = ? for update skip locked", (own,))
    if not rows:
        return (yield from _look(schema, outcome, now))
    spawned = {job.id for job in outcome.spawn}
    try:
        check_spawn(outcome.spawn)
        for job in outcome.spawn:
            check_job(job, max_payload)
        flows = sorted({job.flow_id for job in outcome.spawn if job.flow_id is not None})
        stored = sorted({id for job in outcome.spawn for id in job.depends_on} - spawned)
    except InvalidJob:
        flows, stored = [], []  # what it names may be no text for a store; it is refused below, behind the fence
    rows = yield call(
        schema,
        "prepare_spawn",
        (own, "text"),
        (array(flows) if flows else None, "text"),
        (array(stored) if stored else None, "text"),
        (handover is not None, "boolean"),
        columns="locked, dependents",
    )
    locked, dependents = rows[0]
    if locked is not None:
        return JobLocked.job(own, locked)
    (answer,), before = yield from settle_plain(schema, [outcome], now, release=handover is None)
    if answer is not None or before:
        return answer
    try:
        check_spawn(outcome.spawn)
        answers = yield from enqueue(schema, outcome.spawn, now, max_payload)
        if handover is not None:
            by_id = {job.id: answer for job, answer in zip(outcome.spawn, answers, strict=True)}
            if handover not in by_id or by_id[handover].id == own:
                return no_heir(handover)
            heir = by_id[handover].id
            if by_id[handover].existed:
                last = yield from _last_of(schema, own, heir)
                if isinstance(last, JobLocked):
                    return last
                if last == own:
                    return own_heir(handover, own)
                heir = last
            rows = yield value(
                schema,
                "hand_over",
                (own, "text"),
                (heir, "text"),
                (dependents, "text"),
                (micros(now), "bigint"),
            )
            if rows[0][0] is not None:
                return InvalidJob(rows[0][0])
    except InvalidJob as error:
        return error
    return None


def _last_of(schema: str, own: str, id: str) -> Program[str | JobLocked]:
    """The job that stands in the place of a stored one, over however many handovers, as far as its successors are still
    there. It cannot be settled until we commit; nobody is waited for."""
    last, name = id, quoted(schema)
    while True:
        if (yield Statement(f"select 1 from {name}.jobs where id = ? for key share skip locked", (id,))):
            return id
        rows = yield Statement(f"select handed_to from {name}.history where id = ? for key share skip locked", (id,))
        if not rows:  # locked, or it has moved from one table to the other between the two looks; or it is gone
            there = yield Statement(f"select 1 from {name}.records where id = ?", (id,))
            return JobLocked.job(own, id) if there else last
        last = id
        if rows[0][0] is None:
            return last
        id = rows[0][0]


def _look(schema: str, outcome: Ack | Fail, now: datetime) -> Program[TaskHarborError | None]:
    """What is to be said of an outcome whose job could not be locked: it is gone, or somebody else has it."""
    lease = outcome.lease
    given = OutcomeRow(0, lease.job_id, lease.token, _KINDS[type(outcome)])
    rows = yield _settle_statement(schema, [given], now, release=True)
    _, code, ends = rows[0]
    if code == _APPLIED_BEFORE:
        return None
    return JobLocked.job(lease.job_id) if code == _HOLDS else refusal(code, lease.job_id, ends)


def extend(
    schema: str, leases: Sequence[Lease], now: datetime, lease_for: timedelta
) -> Program[list[Lease | DriverError]]:
    """Extend leases of different jobs."""
    given = [{"o": place, "id": lease.job_id, "token": lease.token} for place, lease in enumerate(leases)]
    rows = yield call(
        schema,
        "extend",
        (to_json(given), "text"),
        (micros(now), "bigint"),
        (micros(now + lease_for), "bigint"),
        columns="o, code, ends",
    )
    answers: dict[int, Lease | DriverError] = {}
    for place, code, ends in rows:
        lease = leases[place]
        if code == _HOLDS:
            answers[place] = Lease(lease.job_id, lease.queue, lease.token, moment_of(ends))
        elif code == _LOCKED:
            answers[place] = JobLocked.job(lease.job_id)
        else:
            answers[place] = refusal(code, lease.job_id, ends)
    return [answers[place] for place in range(len(leases))]


def refusal(code: int, id: str, ends: int | None) -> DriverError:
    """The error for a code that settle and extend answer with."""
    if code == 1:
        return JobNotFound(f"no job {id}")
    if code == 2:
        return JobNotInflight(f"job {id} is not inflight")
    if code == 3:
        return LeaseMismatch(f"job {id} was reserved again: another lease holds it")
    return LeaseExpired(f"the lease on job {id} ended at {moment_of(ends or 0)}")


def _given(place: int, outcome: Outcome) -> OutcomeRow:
    lease: Any = outcome.lease
    if type(outcome) is Ack:
        if outcome.result is not None and type(outcome.result) is not bytes:
            raise InvalidJob(
                f"result: expected bytes or None, got {type(outcome.result).__name__}; encode it with a codec"
            )
        return OutcomeRow(place, lease.job_id, lease.token, ACK, ACK, outcome.result)
    if type(outcome) is Retry:
        _check_failure(outcome)
        if outcome.run_at is not None:
            check_moment(outcome.run_at, "run_at")
        return OutcomeRow(
            place,
            lease.job_id,
            lease.token,
            RETRY,
            RETRY,
            run_at=None if outcome.run_at is None else micros(outcome.run_at),
            attempts=outcome.attempts,
            last_error=clean_error(outcome.last_error) or None,
            failed_at=None if outcome.failed_at is None else micros(outcome.failed_at),
        )
    if type(outcome) is Fail:
        _check_failure(outcome)
        return OutcomeRow(
            place,
            lease.job_id,
            lease.token,
            FAIL,
            FAIL,
            attempts=outcome.attempts,
            last_error=clean_error(outcome.last_error) or None,
            failed_at=None if outcome.failed_at is None else micros(outcome.failed_at),
            reason=clean_error(outcome.reason) or None,
        )
    if type(outcome) is Cancelled:
        return OutcomeRow(place, lease.job_id, lease.token, CANCEL, CANCEL, reason=clean_error(outcome.reason) or None)
    raise InvalidJob(f"outcome: expected Ack, Retry, Fail or Cancelled, got {type(outcome).__name__}")


def _check_failure(outcome: Retry | Fail) -> None:
    check_number(outcome.attempts, "attempts", 0)
    if outcome.failed_at is not None:
        check_moment(outcome.failed_at, "failed_at")
