"""Leases that were granted: why one is refused, extending, and giving back what a dead worker has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers import DriverError, Lease
from taskharbor.drivers.kit import check_lease, damage_of, from_us, to_us
from taskharbor_mystore.connection import Session
from taskharbor_mystore.rows import Row, all_rows, load, make_ready, update


def refusal(row: Row | None, lease: Lease, now: datetime) -> DriverError | None:
    """Why a lease may not be extended or settled; None if it may."""
    return check_lease(
        lease,
        now,
        stored=row is not None,
        inflight=row is not None and row.state == "inflight",
        token=row.token if row is not None else None,
        ends_at=from_us(row.runnable_at) if row is not None else None,
    )


def extend(session: Session, leases: Sequence[Lease], now: datetime, lease_for: timedelta) -> list[Lease | DriverError]:
    """Move the ends of leases, never to an earlier moment."""
    return [_extend(session, lease, now, now + lease_for) for lease in leases]


def _extend(session: Session, lease: Lease, now: datetime, until: datetime) -> Lease | DriverError:
    row = load(session, lease.job_id)
    refused = refusal(row, lease, now)
    if row is None or refused is not None:
        assert refused is not None
        return refused
    ends_at = max(until, from_us(row.runnable_at))
    update(session, row.num, runnable_at=ends_at, due_at=ends_at)
    return Lease(row.record.id, row.record.queue, lease.token, ends_at)


def release(session: Session, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker has under valid leases, in the order of arrival."""
    sql = "SELECT * FROM jobs WHERE worker = ? AND state = 'inflight' AND runnable_at > ? ORDER BY arrival"
    rows = [row for row in all_rows(session, sql, worker, to_us(now)) if row.token not in keep]
    for row in rows:
        sound = damage_of(row.record) is None  # a damaged record is kept as it was found
        make_ready(session, row, now, run_at=None, **({"lost": row.record.lost + 1} if sound else {}))
    return len(rows)
