"""Outcomes: what becomes of a job that was reserved. Each is checked whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.graph import no_heir, own_heir
from taskharbor.drivers.memory.enqueue import Plan, carry_out, last_of, plan, refuse_handover
from taskharbor.drivers.memory.flows import hand_over, release_dependents
from taskharbor.drivers.memory.leases import refusal
from taskharbor.drivers.memory.records import CANCELLED, DLQ, DONE, INFLIGHT, Entry, ticks
from taskharbor.drivers.memory.store import Store
from taskharbor.model.bounds import check_moment, check_number, check_spawn, clean_error
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry


def settle(store: Store, outcomes: Sequence[Outcome], now: datetime, max_payload: int) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one is answered in its place."""
    moment, find = ticks(now), store.entries.get
    answers: list[TaskHarborError | None] = []
    for outcome in outcomes:
        lease, kind = outcome.lease, type(outcome)
        entry = find(lease.job_id)
        # Held by this token and not expired, as nearly every one is? `refusal` tells the others apart.
        if (
            entry is None
            or entry.standing != INFLIGHT
            or (held := entry.lease) is None
            or held.token != lease.token
            or entry.moment is None
            or entry.moment <= moment
        ):
            if entry is not None and entry.settled == lease.token and entry.settled_as is kind:
                answers.append(None)
                continue
            refused = refusal(entry, lease, moment)
            if entry is None or refused is not None:
                answers.append(refused)
                continue
        try:
            if type(outcome) is Ack and not outcome.spawn and outcome.handover is None:
                # The most common outcome of all: done, with nothing spawned.
                if outcome.result is not None:
                    _check_result(outcome)
                record = replace(entry.record, result=outcome.result, finished_at=now, lost=0)
                if entry.standing != INFLIGHT:  # expired for somebody whose clock is ahead
                    store.finish(entry, DONE, record, moment)
                else:
                    store.done(entry, record, moment)
                if entry.dependents:
                    release_dependents(store, entry, moment)
            else:
                _apply(store, entry, outcome, now, moment, max_payload)
        except InvalidJob as invalid:
            answers.append(invalid)
        else:
            entry.settled = lease.token
            if entry.settled_as is not kind:
                entry.settled_as = kind
            answers.append(None)
    return answers


def _apply(store: Store, entry: Entry, outcome: Outcome, now: datetime, moment: int, max_payload: int) -> None:
    if type(outcome) is Ack:
        _ack_and_spawn(store, entry, outcome, now, max_payload)
    elif type(outcome) is Retry:
        _retry(store, entry, outcome, moment)
    elif type(outcome) is Fail:
        _fail(store, entry, outcome, now, max_payload)
    elif type(outcome) is Cancelled:
        reason = clean_error(outcome.reason)
        record = replace(entry.record, reason=reason, last_error=reason, finished_at=now, lost=0)
        store.finish(entry, CANCELLED, record, moment)
    else:
        raise InvalidJob(f"outcome: expected Ack, Retry, Fail or Cancelled, got {type(outcome).__name__}")


def _ack_and_spawn(store: Store, entry: Entry, outcome: Ack, now: datetime, max_payload: int) -> None:
    """The same as an ack and then an enqueue, except that nobody can look in between."""
    _check_result(outcome)
    made = _planned(store, outcome.spawn, now, max_payload)
    dependents = list(entry.dependents or ())
    heir = _heir(store, made, entry, outcome, dependents)
    moment = ticks(now)
    record = replace(entry.record, result=outcome.result, finished_at=now, lost=0, handed_to=heir)
    store.finish(entry, DONE, record, moment)
    if heir is None:
        release_dependents(store, entry, moment)
        carry_out(store, made, now)
    else:
        carry_out(store, made, now)
        hand_over(store, entry, dependents, store.entries[heir], moment)


def _heir(store: Store, made: Plan, entry: Entry, outcome: Ack, dependents: list[Entry]) -> str | None:
    """The stored id of the job that takes over, or InvalidJob."""
    if outcome.handover is None:
        return None
    spawned = {job.id: answer.id for job, answer in zip(outcome.spawn, made.answers, strict=True)}
    heir = spawned.get(outcome.handover)
    if heir is None or heir == entry.record.id:
        raise no_heir(outcome.handover)
    if heir in store.entries:
        heir = last_of(store, store.entries[heir]).record.id
        if heir == entry.record.id:
            raise own_heir(outcome.handover, heir)
    if dependents:
        refuse_handover(store, made, heir, dependents)
    return heir


def _retry(store: Store, entry: Entry, outcome: Retry, moment: int) -> None:
    _check_failure(outcome)
    if outcome.run_at is not None:
        check_moment(outcome.run_at, "run_at")
    record = entry.record
    given_back = outcome.attempts == record.attempts
    record = replace(
        record,
        run_at=outcome.run_at,
        attempts=outcome.attempts,
        last_error=clean_error(outcome.last_error) or record.last_error,
        failed_at=outcome.failed_at or record.failed_at,
        lost=record.lost if given_back else 0,
    )
    store.join(entry, record, moment)


def _fail(store: Store, entry: Entry, outcome: Fail, now: datetime, max_payload: int) -> None:
    _check_failure(outcome)
    made = _planned(store, outcome.spawn, now, max_payload)
    reason = clean_error(outcome.reason)
    record = replace(
        entry.record,
        reason=reason,
        attempts=outcome.attempts,
        failed_at=outcome.failed_at or entry.record.failed_at,
        last_error=clean_error(outcome.last_error) or reason,
        finished_at=now,
        lost=0,
    )
    store.finish(entry, DLQ, record, ticks(now))
    carry_out(store, made, now)


def _planned(store: Store, spawn: Sequence[JobRecord], now: datetime, max_payload: int) -> Plan:
    check_spawn(spawn)
    return plan(store, spawn, now, max_payload)


def _check_result(outcome: Ack) -> None:
    if outcome.result is not None and type(outcome.result) is not bytes:
        raise InvalidJob(f"result: expected bytes or None, got {type(outcome.result).__name__}; encode it with a codec")


def _check_failure(outcome: Retry | Fail) -> None:
    check_number(outcome.attempts, "attempts", 0)
    if outcome.failed_at is not None:
        check_moment(outcome.failed_at, "failed_at")
