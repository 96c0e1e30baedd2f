"""Reserving: the due jobs of some queues in their order, each under a lease. A worker's hot path.

Yours must not get slower with a million jobs beside: an index on (queue, priority, due_at, arrival) of what is due.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers import Lease, Reserved, State, replace
from taskharbor_mystore.store import Row, Store


def reserve(
    store: Store, queues: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> list[Reserved]:
    """Take up to `limit` jobs: of each queue in turn, and in a queue of each group in turn."""
    for each in list(store.rows.values()):
        met = each.state_at(now) is State.READY or not isinstance(each.state, State)
        if met and each.record.queue in queues and _has_capacity(store, each, now):
            store.set_aside(each, now)
    reserved: list[Reserved] = []
    served = [queue for queue in queues if queue not in store.paused]
    while len(reserved) < limit and (row := _next(store, served, now)) is not None:
        queue, number = row.record.queue, store.next_number()
        store.served[queue] = store.served[queue, row.record.group] = number
        if row.record.group is not None:
            store.served[queue, ""] = number  # the groups together, in turn with the ungrouped jobs
        reserved.append(_grant(row, Lease(row.record.id, queue, secrets.token_hex(16), now + lease_for), worker))
    return reserved


def _next(store: Store, queues: Sequence[str], now: datetime) -> Row | None:
    """The job whose turn it is: the queue, the kind and the group come first that were served longest ago."""
    heads: dict[tuple[str, str | None], Row] = {}
    for row in store.rows.values():
        key = (row.record.queue, row.record.group)
        if row.record.queue not in queues or row.state_at(now) is not State.READY:
            continue
        if (key not in heads or row.place() < heads[key].place()) and _has_capacity(store, row, now):
            heads[key] = row

    def turn(row: Row) -> tuple[int, int, int, int]:
        queue, group = row.record.queue, row.record.group
        kind = None if group is None else ""
        last = store.served.get
        return (last(queue, 0), last((queue, kind), 0), last((queue, group), 0), row.arrival)

    return min(heads.values(), key=turn, default=None)


def _has_capacity(store: Store, row: Row, now: datetime) -> bool:
    queue, group = row.record.queue, row.record.group
    if group is None:
        return True
    members = [one for one in store.rows.values() if one.record.group == group and one.record.queue == queue]
    inflight = sum(one.state_at(now) is State.INFLIGHT for one in members)
    return inflight < store.group_limits.get((queue, group), 1)


def _grant(row: Row, lease: Lease, worker: str) -> Reserved:
    record = replace(row.record, deliveries=row.record.deliveries + 1)
    if row.lease is not None:  # it expired
        record = replace(record, lost=record.lost + 1, run_at=None)
    row.record, row.state, row.lease, row.worker, row.settled = record, State.INFLIGHT, lease, worker, None
    return Reserved(replace(record, metadata=dict(record.metadata)), lease)
