"""Leases that were granted: why one is refused, extending, and giving back what a dead worker has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers import DriverError, Lease, State
from taskharbor.drivers.damage import damage_of
from taskharbor.drivers.refusals import check_lease
from taskharbor_mystore.store import Row, Store


def refusal(row: Row | None, lease: Lease, now: datetime) -> DriverError | None:
    """Why a lease may not be extended or settled; None if it may."""
    held = row.lease if row is not None else None
    return check_lease(
        lease,
        now,
        stored=row is not None,
        inflight=held is not None,
        token=held.token if held is not None else None,
        ends_at=held.expires_at if held is not None else None,
    )


def extend(store: Store, leases: Sequence[Lease], now: datetime, lease_for: timedelta) -> list[Lease | DriverError]:
    """Move the ends of leases, never to an earlier moment."""
    results: list[Lease | DriverError] = []
    for lease in leases:
        row = store.rows.get(lease.job_id)
        refused = refusal(row, lease, now)
        if refused is not None or row is None or row.lease is None:
            assert refused is not None
            results.append(refused)
            continue
        row.lease = Lease(row.record.id, row.record.queue, lease.token, max(now + lease_for, row.lease.expires_at))
        results.append(row.lease)
    return results


def release(store: Store, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order of arrival."""
    rows = [
        row
        for row in store.rows.values()
        if row.lease is not None and row.worker == worker and row.lease.token not in keep
        if row.state_at(now) is State.INFLIGHT
    ]
    for row in sorted(rows, key=lambda row: row.arrival):
        sound = damage_of(row.record) is None  # a damaged record is kept as it was found
        store.make_ready(row, now, run_at=None, lost=row.record.lost + 1 if sound else row.record.lost)
    return len(rows)
