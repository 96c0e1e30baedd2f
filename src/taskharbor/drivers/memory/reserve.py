"""Reserving: taking runnable jobs out of their queues and granting a lease on each.

A worker's hot path: what does not depend on the job is worked out once a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from msgspec.structs import replace

from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import EXPIRED, INFLIGHT, Entry, outward
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Lost, Reserved
from taskharbor.model.times import to_us

_NO_TIME = timedelta(0)


def reserve(
    store: MemoryStore, names: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> list[Reserved]:
    """Take up to `limit` runnable jobs of these queues."""
    moment = to_us(now)
    if store.unmet:
        store.set_unmet_aside(now)
    queues = [queue for name in dict.fromkeys(names) if (queue := store.queues.get(name)) and not queue.paused]
    for queue in queues:
        queue.move(moment)
    damaged: list[Entry] = []
    taken = queues[0].take(limit, damaged) if len(queues) == 1 else _take_in_turns(store, queues, limit, damaged)
    for entry in damaged:
        store.set_aside(entry, now)
    return grant(taken, now, lease_for, worker)


def _take_in_turns(store: MemoryStore, queues: list[JobQueue], limit: int, damaged: list[Entry]) -> list[Entry]:
    """One job of each queue in turn, beginning with the queue that any worker was served from longest ago."""
    taken: list[Entry] = []
    turns = deque(sorted(queues, key=attrgetter("served")))
    while turns and len(taken) < limit:
        queue = turns.popleft()
        entries = queue.take(1 if turns else limit - len(taken), damaged)
        if entries:
            taken += entries
            queue.served = store.next_number()
            turns.append(queue)
    return taken


def grant(taken: list[Entry], now: datetime, lease_for: timedelta, worker: str) -> list[Reserved]:
    """Put jobs that were taken out of their queues under leases of this worker."""
    expires_at = now + lease_for
    expires = to_us(expires_at)
    granted = []
    queue: JobQueue | None = None
    for entry, token in zip(taken, new_tokens(len(taken)), strict=True):
        if entry.queue is not queue:
            queue = entry.queue
            calendar, counts, name = queue.calendar, queue.counts, queue.name
            bucket = calendar.bucket(expires)  # the leases that end at this moment
        if entry.moment is not None:
            calendar.remove(entry)
            bucket = calendar.bucket(expires)  # again: a bucket that was left empty is gone
        record, lost_by = entry.record, None
        if record.deliveries:
            lost_by = _look_back(entry)
            record = entry.record
        record = replace(record, deliveries=record.deliveries + 1, began_at=now, ran_on=worker)
        counts[entry.standing] -= 1
        counts[INFLIGHT] += 1
        lease = Lease(record.id, name, token, expires_at)
        entry.standing = INFLIGHT
        entry.record = record
        entry.lease = lease
        entry.worker = worker
        entry.moment = expires
        bucket[entry] = None
        granted.append(Reserved(outward(record) if record.metadata else record, lease, lost_by))
    if lease_for <= _NO_TIME:
        for entry in taken:
            entry.queue.expire(entry)
    return granted


def _look_back(entry: Entry) -> Lost | None:
    """A job is reserved again: forget how its last delivery was settled. If it was lost, return how."""
    entry.settled = None
    record, released_at = entry.record, entry.lost_at
    if entry.standing == EXPIRED and entry.lease is not None:
        entry.record = replace(record, lost=record.lost + 1, run_at=None)
        return Lost(record.ran_on, record.began_at, entry.lease.expires_at)
    if released_at is not None:
        entry.lost_at = None
        return Lost(record.ran_on, record.began_at, released_at)
    return None
