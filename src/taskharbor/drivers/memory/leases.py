"""Leases: granting, extending and giving them back.

Granting is the hot half of the reference driver: what does not depend on the job is worked out once a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.memory.queue import Queue
from taskharbor.drivers.memory.records import EXPIRED, INFLIGHT, LEASED, Entry, outward, ticks
from taskharbor.drivers.memory.store import Store
from taskharbor.model.errors import DriverError, JobNotFound, JobNotInflight, LeaseExpired, LeaseMismatch
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Reserved

_NONE = timedelta(0)


def reserve(
    store: Store, names: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> list[Reserved]:
    """Take up to `limit` runnable jobs of these queues."""
    moment = ticks(now)
    if store.unmet:
        for entry in list(store.unmet.values()):
            store.set_aside(entry, now)
        store.unmet.clear()
    queues = [queue for name in dict.fromkeys(names) if (queue := store.queues.get(name)) and not queue.paused]
    for queue in queues:
        queue.move(moment)
    damaged: list[Entry] = []
    taken = queues[0].take(limit, damaged) if len(queues) == 1 else _in_turns(store, queues, limit, damaged)
    for entry in damaged:
        store.set_aside(entry, now)
    return grant(taken, now, lease_for, worker)


def _in_turns(store: Store, queues: list[Queue], limit: int, damaged: list[Entry]) -> list[Entry]:
    """One job from each in turn, the queue first that was served longest ago: whoever asks for whichever queues."""
    taken: list[Entry] = []
    turns = deque(sorted(queues, key=_served))
    while turns and len(taken) < limit:
        queue = turns.popleft()
        found = queue.take(1 if turns else limit - len(taken), damaged)
        if found:
            taken += found
            queue.served = store.next_number()
            turns.append(queue)
    return taken


def grant(taken: list[Entry], now: datetime, lease_for: timedelta, worker: str) -> list[Reserved]:
    """Put jobs that were taken from their lines under leases of this worker."""
    expires_at = now + lease_for
    expires = ticks(expires_at)
    granted = []
    queue: Queue | None = None
    for entry, token in zip(taken, new_tokens(len(taken)), strict=True):
        if entry.queue is not queue:
            queue = entry.queue
            calendar, counts, name = queue.calendar, queue.counts, queue.name
            bucket = calendar.bucket(expires)
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
    if lease_for <= _NONE:
        for entry in taken:
            entry.queue.expire(entry)
    return granted


def refusal(entry: Entry | None, lease: Lease, now: int) -> DriverError | None:
    """Why a lease may not be extended or settled, in the order of the contract; None if it may."""
    if entry is None:
        return JobNotFound(f"no job {lease.job_id}")
    if entry.standing not in LEASED:
        return JobNotInflight(f"job {lease.job_id} is not inflight")
    held = entry.lease
    if held is None or held.token != lease.token:
        return LeaseMismatch(f"job {lease.job_id} was reserved again: another lease holds it")
    if entry.moment is None or entry.moment <= now:
        return LeaseExpired(f"the lease on job {lease.job_id} ended at {held.expires_at}")
    return None


def extend(store: Store, leases: Sequence[Lease], now: datetime, lease_for: timedelta) -> list[Lease | DriverError]:
    """Move the ends of leases, never to an earlier moment."""
    moment = ticks(now)
    wanted = now + lease_for
    until = ticks(wanted)
    answers: list[Lease | DriverError] = []
    for lease in leases:
        entry = store.entries.get(lease.job_id)
        refused = refusal(entry, lease, moment)
        if refused is not None:
            answers.append(refused)
            continue
        assert entry is not None
        assert entry.moment is not None
        if until > entry.moment:
            queue = entry.queue
            if entry.standing == EXPIRED:
                queue.move(moment)  # somebody with a faster clock saw it expire; here it is held, and stays so
            queue.calendar.remove(entry)
            queue.calendar.add(entry, until)
            entry.lease = Lease(lease.job_id, queue.name, lease.token, wanted)
        assert entry.lease is not None
        answers.append(entry.lease)
    return answers


def release(store: Store, worker: str, now: datetime, keep: Sequence[str]) -> int:
    """Give back what a worker holds under valid leases, in the order in which it had once joined the lines."""
    moment, kept = ticks(now), frozenset(keep)
    held: list[Entry] = []
    for queue in store.queues.values():
        queue.move(moment)
        held += [
            entry
            for bucket in queue.calendar.ahead.values()
            for entry in bucket
            if entry.standing == INFLIGHT and entry.worker == worker and entry.lease and entry.lease.token not in kept
        ]
    for entry in sorted(held, key=_arrival):
        lost = entry.record.lost
        lost = lost + 1 if type(lost) is int else lost  # another program was here: kept as it was found
        store.join(entry, replace(entry.record, lost=lost, run_at=None), moment)
    return len(held)


def _served(queue: Queue) -> int:
    return queue.served


def _arrival(entry: Entry) -> int:
    return entry.arrival
