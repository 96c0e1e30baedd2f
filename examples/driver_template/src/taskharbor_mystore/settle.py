"""Outcomes: each is checked whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers import Ack, Cancelled, Fail, InvalidJob, Outcome, Retry, State, TaskHarborError, clean_error
from taskharbor.model.bounds import check_outcome
from taskharbor_mystore import flows
from taskharbor_mystore.enqueue import heir_of, plan_of, store_jobs
from taskharbor_mystore.leases import refusal
from taskharbor_mystore.store import Row, Store


def settle(store: Store, outcomes: Sequence[Outcome], now: datetime, max_payload: int) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one has its error in its place."""
    return [_settle(store, outcome, now, max_payload) for outcome in outcomes]


def _settle(store: Store, outcome: Outcome, now: datetime, max_payload: int) -> TaskHarborError | None:
    row = store.rows.get(outcome.lease.job_id)
    if row is not None and row.settled == (outcome.lease.token, type(outcome)):
        return None  # the same call again, because its reply was lost
    refused = refusal(row, outcome.lease, now)
    if row is None or refused is not None:
        return refused
    try:
        check_outcome(outcome, max_payload)
        _apply(store, row, outcome, now)
    except InvalidJob as invalid:
        return invalid
    row.settled = (outcome.lease.token, type(outcome))
    return None


def _apply(store: Store, row: Row, outcome: Outcome, now: datetime) -> None:
    if isinstance(outcome, Ack):
        _ack(store, row, outcome, now)
    elif isinstance(outcome, Retry):
        store.make_ready(
            row,
            now,
            run_at=outcome.run_at,
            attempts=outcome.attempts,
            last_error=clean_error(outcome.last_error) or row.record.last_error,
            failed_at=outcome.failed_at or row.record.failed_at,
            lost=row.record.lost if outcome.attempts == row.record.attempts else 0,
        )
    elif isinstance(outcome, Fail):
        plan = plan_of(store, outcome.spawn)
        store.finish(
            row,
            State.DLQ,
            now,
            reason=clean_error(outcome.reason),
            attempts=outcome.attempts,
            failed_at=outcome.failed_at or row.record.failed_at,
            last_error=clean_error(outcome.last_error) or clean_error(outcome.reason),
            lost=0,
        )
        store_jobs(store, plan.fresh.values(), now)
    elif isinstance(outcome, Cancelled):
        reason = clean_error(outcome.reason)
        store.finish(row, State.CANCELLED, now, reason=reason, last_error=reason, lost=0)


def _ack(store: Store, row: Row, outcome: Ack, now: datetime) -> None:
    plan = plan_of(store, outcome.spawn)
    dependents = flows.dependents_of(store, row)
    heir = heir_of(store, plan, outcome, dependents)
    store.finish(row, State.DONE, now, result=outcome.result, lost=0, handed_to=heir)
    if heir is not None:
        store_jobs(store, plan.fresh.values(), now)
        flows.hand_over(dependents, row, store.rows[heir])
    flows.release(store, dependents, now)
    if heir is None:
        store_jobs(store, plan.fresh.values(), now)
