"""Leases that were granted: extending them, giving them back, and why one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.notes import bad_notes
from taskharbor.drivers.refusals import check_lease
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.job import State
from taskharbor.model.lease import Lease


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
