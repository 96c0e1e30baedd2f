"""What becomes of a job that was reserved: its lease is extended or given back, or an outcome ends it. Each outcome is
checked whole before anything of it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.memory.enqueue import heir_of, plan_of, store_jobs
from taskharbor.drivers.memory.flows import cancel_behind, hand_over, release_dependents, strand
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.refusals import bad_notes, check_lease
from taskharbor.model.bounds import check_memo, check_outcome, clean_error
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import State
from taskharbor.model.lease import Lease
from taskharbor.model.memo import Memo
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
            cancel_behind(store, [entry], now)


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
        new = store.entries[heir]
        hand_over(dependents, entry, new)
        release_dependents(store, entry, dependents, now)
        if new.state is State.CANCELLED and (flow := new.record.flow_id) is not None:
            stranded = [one for one in dependents if one.state is State.BLOCKED and one.record.flow_id == flow]
            strand(store, stranded, now)


# Leases that were granted


def refusal(entry: Entry | None, lease: Lease, now: datetime) -> DriverError | None:
    """Why a lease may not be extended or settled; None if it may."""
    held = entry.lease if entry is not None else None
    return check_lease(
        lease,
        now,
        stored=entry is not None,
        inflight=held is not None,
        token=held.token if held is not None else None,
        ends_at=held.expires_at if held is not None else None,
    )


def extend(
    store: MemoryStore,
    leases: Sequence[Lease],
    now: datetime,
    lease_for: timedelta,
    notes: Mapping[str, bytes] | None,
) -> list[Lease | TaskHarborError]:
    """Move the ends of leases, never to an earlier moment, and store the notes of those that hold."""
    bad = bad_notes(leases, notes or {})
    results: list[Lease | TaskHarborError] = []
    for place, lease in enumerate(leases):
        entry = store.entries.get(lease.job_id)
        refused: TaskHarborError | None = bad.get(place) or refusal(entry, lease, now)
        if refused is not None:
            results.append(refused)
            continue
        assert entry is not None
        assert entry.lease is not None
        entry.lease = replace(entry.lease, expires_at=max(entry.lease.expires_at, now + lease_for))
        store.queue_of(entry).put(entry)
        if notes and lease.token in notes:
            entry.record = replace(entry.record, note=notes[lease.token])
        results.append(entry.lease)
    return results


def save(store: MemoryStore, lease: Lease, name: str, value: bytes, now: datetime) -> None:
    """Store a memo of a job whose lease holds."""
    check_memo(name, value)
    entry = store.entries.get(lease.job_id)
    refused = refusal(entry, lease, now)
    if refused is not None:
        raise refused
    assert entry is not None
    entry.memos[name] = Memo(name, value, now, entry.record.deliveries)
    entry.record = replace(entry.record, has_memos=True)


def release(store: MemoryStore, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order in which the jobs had joined their queues."""
    held = [
        entry
        for entry in store.entries.values()
        if entry.worker == worker and entry.lease is not None and entry.lease.token not in keep
        if entry.state_at(now) is State.INFLIGHT
    ]
    for entry in sorted(held, key=lambda entry: entry.arrival):
        lost = entry.record.lost
        lost = lost + 1 if type(lost) is int else lost  # a damaged record is kept as it was found
        store.join(entry, now, lost=lost, run_at=None)
        entry.lost_at = now
    return len(held)
