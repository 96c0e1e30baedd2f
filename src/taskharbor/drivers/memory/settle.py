"""Outcomes: what becomes of a job that was reserved. Each is checked whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.memory.enqueue import heir_of, plan_of, store_jobs
from taskharbor.drivers.memory.flows import hand_over, release_dependents
from taskharbor.drivers.memory.leases import refusal
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.bounds import check_outcome, clean_error
from taskharbor.model.errors import InvalidJob, TaskHarborError
from taskharbor.model.job import State
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry


def settle(
    store: MemoryStore, outcomes: Sequence[Outcome], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Apply outcomes one after the other; a refused one has its error in its place."""
    return [_settle_one(store, outcome, now, max_payload) for outcome in outcomes]


def _settle_one(store: MemoryStore, outcome: Outcome, now: datetime, max_payload: int) -> TaskHarborError | None:
    entry, this = store.entries.get(outcome.lease.job_id), (outcome.lease.token, type(outcome))
    if entry is not None and entry.settled == this:
        return None  # the same call again, because its reply was lost
    refused = refusal(entry, outcome.lease, now)
    if entry is None or refused is not None:
        return refused
    try:
        check_outcome(outcome, max_payload)
        _apply(store, entry, outcome, now)
    except InvalidJob as invalid:
        return invalid
    entry.settled = this
    return None


def _apply(store: MemoryStore, entry: Entry, outcome: Outcome, now: datetime) -> None:
    record = entry.record
    trail = outcome.trail or record.trail
    match outcome:
        case Ack():
            _ack(store, entry, outcome, now, trail)
        case Retry():
            given_back = outcome.attempts == record.attempts
            store.join(
                entry,
                now,
                run_at=outcome.run_at,
                attempts=outcome.attempts,
                last_error=clean_error(outcome.last_error) or record.last_error,
                failed_at=outcome.failed_at or record.failed_at,
                lost=record.lost if given_back else 0,
                error_class=outcome.error_class or record.error_class,
                fingerprint=outcome.fingerprint or record.fingerprint,
                trail=trail,
            )
        case Fail():
            plan = plan_of(store, outcome.spawn)
            reason = clean_error(outcome.reason)
            store.finish(
                entry,
                State.DLQ,
                now,
                reason=reason,
                attempts=outcome.attempts,
                failed_at=outcome.failed_at or record.failed_at,
                last_error=clean_error(outcome.last_error) or reason,
                lost=0,
                error_class=outcome.error_class,
                fingerprint=outcome.fingerprint,
                trail=trail,
            )
            store_jobs(store, plan.fresh.values(), now)
        case Cancelled():
            reason = clean_error(outcome.reason)
            store.finish(entry, State.CANCELLED, now, reason=reason, last_error=reason, lost=0, trail=trail)


def _ack(store: MemoryStore, entry: Entry, outcome: Ack, now: datetime, trail: bytes) -> None:
    """The same as an ack and then an enqueue, except that no other call can come in between. With a handover, the
    dependents wait for the heir instead, so that it has to be stored first."""
    plan = plan_of(store, outcome.spawn)
    dependents = set(entry.dependents)
    heir = heir_of(store, plan, outcome, dependents)
    store.finish(entry, State.DONE, now, result=outcome.result, lost=0, handed_to=heir, trail=trail)
    if heir is None:
        release_dependents(store, entry, dependents, now)
        store_jobs(store, plan.fresh.values(), now)
    else:
        store_jobs(store, plan.fresh.values(), now)
        hand_over(dependents, entry, store.entries[heir])
        release_dependents(store, entry, dependents, now)
