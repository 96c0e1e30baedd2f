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
from taskharbor.model.lease import Lease, Reserved
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
        record, standing = entry.record, entry.standing
        if standing == EXPIRED:
            record = replace(record, deliveries=record.deliveries + 1, lost=record.lost + 1, run_at=None)
        else:
            record = replace(record, deliveries=record.deliveries + 1)
        counts[standing] -= 1
        counts[INFLIGHT] += 1
        lease = Lease(record.id, name, token, expires_at)
        entry.standing = INFLIGHT
        entry.record = record
        entry.lease = lease
        entry.worker = worker
        entry.moment = expires
        if entry.settled:
            entry.settled = None
        bucket[entry] = None
        granted.append(Reserved(outward(record) if record.metadata else record, lease))
    if lease_for <= _NO_TIME:
        for entry in taken:
            entry.queue.expire(entry)
    return granted
