"""Reserving: taking due jobs out of their queues and granting a lease on each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import State
from taskharbor.model.lease import Lease, Lost, Reserved


def reserve(
    store: MemoryStore, names: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> list[Reserved]:
    """Take up to `limit` due jobs of these queues."""
    queues = [queue for name in dict.fromkeys(names) if (queue := store.queues.get(name)) and not queue.paused]
    for queue in queues:
        queue.move(now)
    expires_at = now + lease_for
    taken: list[Entry] = []
    while len(taken) < limit and (entry := _take_next(store, queues, now)) is not None:
        taken.append(entry)
    # All are taken before the first is granted: a lease may last no time at all, and its job is due again at once.
    tokens = new_tokens(len(taken))
    return [_grant(store, entry, token, now, expires_at, worker) for entry, token in zip(taken, tokens, strict=True)]


def _take_next(store: MemoryStore, queues: list[JobQueue], now: datetime) -> Entry | None:
    """A job of the queue that was served longest ago, by any worker, and has a due job."""
    for queue in sorted(queues, key=lambda queue: queue.served):
        while (entry := queue.peek()) is not None:
            if not store.set_aside(entry, now):
                queue.take(entry)
                queue.served = store.next_number()
                return entry
    return None


def _grant(store: MemoryStore, entry: Entry, token: str, now: datetime, expires_at: datetime, worker: str) -> Reserved:
    """Put a job that was taken out of its queue under a lease of this worker."""
    record, lost_by = entry.record, None
    if entry.lease is not None:  # it has expired: its worker was lost
        lost_by = Lost(record.ran_on, record.began_at, entry.lease.expires_at)
        record = replace(record, lost=record.lost + 1, run_at=None)
    elif entry.lost_at is not None:
        lost_by = Lost(record.ran_on, record.began_at, entry.lost_at)
    entry.record = replace(record, deliveries=record.deliveries + 1, began_at=now, ran_on=worker)
    entry.lease = Lease(record.id, record.queue, token, expires_at)
    entry.state, entry.worker = State.INFLIGHT, worker
    entry.settled = entry.lost_at = None
    store.queue_of(entry).put(entry)
    return Reserved(replace(entry.record, metadata=dict(record.metadata)), entry.lease, lost_by)
