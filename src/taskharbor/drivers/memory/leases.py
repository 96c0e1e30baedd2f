"""Leases that were granted: extending them, giving them back, and why one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from msgspec.structs import replace

from taskharbor.drivers.memory.records import EXPIRED, INFLIGHT, LEASED, Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.notes import bad_notes
from taskharbor.drivers.refusals import check_lease
from taskharbor.model.errors import DriverError, TaskHarborError
from taskharbor.model.lease import Lease
from taskharbor.model.times import to_us


def refusal(entry: Entry | None, lease: Lease, now: datetime) -> DriverError | None:
    """Why a lease may not be extended or settled; None if it may."""
    held = entry.lease if entry is not None else None
    return check_lease(
        lease,
        now,
        stored=entry is not None,
        inflight=entry is not None and entry.standing in LEASED,
        token=held.token if held is not None else None,
        ends_at=held.expires_at if held is not None else None,
    )


def extend(
    store: MemoryStore,
    leases: Sequence[Lease],
    now: datetime,
    lease_for: timedelta,
    notes: Mapping[str, bytes] | None = None,
) -> list[Lease | TaskHarborError]:
    """Move the ends of leases, never to an earlier moment, and store the notes of those that hold."""
    moment = to_us(now)
    wanted = now + lease_for
    until = to_us(wanted)
    bad = bad_notes(leases, notes) if notes else {}
    results: list[Lease | TaskHarborError] = []
    for place, lease in enumerate(leases):
        entry = store.entries.get(lease.job_id)
        refused: TaskHarborError | None = bad.get(place) or refusal(entry, lease, now)
        if refused is not None:
            results.append(refused)
            continue
        assert entry is not None
        assert entry.moment is not None
        if until > entry.moment:
            queue = entry.queue
            if entry.standing == EXPIRED:
                queue.move(moment)  # a caller with a faster clock saw it expire; at this `now` it still holds
            queue.calendar.remove(entry)
            queue.calendar.add(entry, until)
            entry.lease = Lease(lease.job_id, queue.name, lease.token, wanted)
        if notes and lease.token in notes:
            entry.record = replace(entry.record, note=notes[lease.token])
        assert entry.lease is not None
        results.append(entry.lease)
    return results


def release(store: MemoryStore, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order in which the jobs had joined their queues."""
    moment, kept = to_us(now), frozenset(keep)
    held: list[Entry] = []
    for queue in store.queues.values():
        queue.move(moment)
        held += [
            entry
            for bucket in queue.calendar.ahead.values()
            for entry in bucket
            if entry.standing == INFLIGHT and entry.worker == worker and entry.lease and entry.lease.token not in kept
        ]
    for entry in sorted(held, key=attrgetter("arrival")):
        lost = entry.record.lost
        lost = lost + 1 if type(lost) is int else lost  # a damaged record is kept as it was found
        store.join(entry, replace(entry.record, lost=lost, run_at=None), moment)
        entry.lost_at = now
    return len(held)
