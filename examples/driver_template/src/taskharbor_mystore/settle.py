"""Outcomes: each is checked as a whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers import Ack, Cancelled, Fail, InvalidJob, Outcome, Retry, State, TaskHarborError, clean_error
from taskharbor.drivers.kit import check_outcome
from taskharbor_mystore.connection import Session
from taskharbor_mystore.enqueue import heir_in, plan_of, store_jobs
from taskharbor_mystore.flows import cancel_behind, dependents_of, hand_over, release, strand
from taskharbor_mystore.leases import refusal
from taskharbor_mystore.rows import Row, finish, load, make_ready, update


def settle(
    session: Session, outcomes: Sequence[Outcome], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one has its error in its place."""
    return [_settle(session, outcome, now, max_payload) for outcome in outcomes]


def _settle(session: Session, outcome: Outcome, now: datetime, max_payload: int) -> TaskHarborError | None:
    row = load(session, outcome.lease.job_id)
    settled = f"{type(outcome).__name__} {outcome.lease.token}"
    if row is not None and row.settled == settled:
        return None  # the same call again, because its reply was lost
    refused = refusal(row, outcome.lease, now)
    if row is None or refused is not None:
        return refused
    try:
        check_outcome(outcome, max_payload)
        _apply(session, row, outcome, now)
    except InvalidJob as invalid:
        return invalid
    update(session, row.num, settled=settled)
    return None


def _apply(session: Session, row: Row, outcome: Outcome, now: datetime) -> None:
    """Plan, which may raise InvalidJob; then write, which does not."""
    changes: dict[str, Any] = {}
    if isinstance(outcome, Ack):
        _ack(session, row, outcome, now)
    elif isinstance(outcome, Cancelled):
        reason = clean_error(outcome.reason)
        finish(session, row, State.CANCELLED, now, reason=reason, last_error=reason, lost=0)
        cancel_behind(session, [row], now)
    else:
        error = clean_error(outcome.last_error)
        if error:
            changes["last_error"] = error
        if outcome.failed_at is not None:
            changes["failed_at"] = outcome.failed_at
        if isinstance(outcome, Retry):
            if outcome.attempts != row.record.attempts:  # else the job is given back, and nothing is recorded
                changes["lost"] = 0
            make_ready(session, row, now, run_at=outcome.run_at, attempts=outcome.attempts, **changes)
        else:
            _fail(session, row, outcome, now, changes)


def _fail(session: Session, row: Row, outcome: Fail, now: datetime, changes: dict[str, Any]) -> None:
    plan = plan_of(session, outcome.spawn)
    reason = clean_error(outcome.reason)
    changes = {"last_error": reason, **changes, "reason": reason, "attempts": outcome.attempts, "lost": 0}
    finish(session, row, State.DLQ, now, **changes)
    store_jobs(session, plan.fresh.values(), now)


def _ack(session: Session, row: Row, outcome: Ack, now: datetime) -> None:
    plan = plan_of(session, outcome.spawn)
    dependents = dependents_of(session, row)
    heir_id = heir_in(session, plan, outcome, dependents)
    finish(session, row, State.DONE, now, result=outcome.result, lost=0, handed_to=heir_id)
    if heir_id is None:
        release(session, dependents, now)
        store_jobs(session, plan.fresh.values(), now)
        return
    store_jobs(session, plan.fresh.values(), now)
    heir = load(session, heir_id)
    assert heir is not None
    hand_over(session, dependents, row, heir)
    release(session, dependents, now)
    flow = heir.record.flow_id
    if heir.state == "cancelled" and flow is not None:
        strand(session, [one for one in dependents if one.state == "blocked" and one.record.flow_id == flow], now)
