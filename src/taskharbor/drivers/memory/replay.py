"""Following another driver: reserve exactly what that one reserved, and object if the contract does not allow it.

How grouped and ungrouped jobs, or two groups, take turns is each driver's own business. A test that compares a driver
with this one lets the other choose, and makes memory follow: whatever was not a legal choice is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.records import DUE, damage_of, ticks
from taskharbor.drivers.memory.reserve import grant
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.lease import Reserved


def replay(
    store: MemoryStore, name: str, ids: Sequence[str], now: datetime, lease_for: timedelta, worker: str
) -> list[Reserved]:
    """Reserve exactly these jobs of a queue in this order, or AssertionError at the first that was no legal choice."""
    granted: list[Reserved] = []
    for id in ids:
        queue = store.queues.get(name)
        assert queue is not None, f"{id}: there is no job in queue {name}"
        assert not queue.paused, f"{id}: queue {name} is paused"
        queue.move(ticks(now))
        _set_damaged_aside(store, queue, now)
        _take(store, queue, id)
        granted += grant([store.entries[id]], now, lease_for, worker)
    return granted


def runnable(store: MemoryStore, name: str, now: datetime) -> bool:
    """Whether reserve would give anything from a queue. Looks at every job: for tests."""
    queue = store.queues.get(name)
    if queue is None or queue.paused:
        return False
    queue.move(ticks(now))
    return any(
        entry.queue is queue
        and entry.standing in DUE
        and damage_of(entry) is None
        and (entry.record.group is None or queue.groups.has_capacity(entry.record.group))
        for entry in store.entries.values()
    )


def _take(store: MemoryStore, queue: JobQueue, id: str) -> None:
    entry = store.entries.get(id)
    assert entry is not None, f"{id}: there is no such job"
    assert entry.queue is queue, f"{id}: is in queue {entry.queue.name}, not in {queue.name}"
    assert entry.standing in DUE, f"{id}: is not ready"
    group = entry.record.group
    if group is None:
        head = queue.ungrouped.peek()
        assert head is entry, f"{id}: {head.record.id if head else None} stands before it in the line"
        queue.ungrouped.pop()
    else:
        assert queue.groups.has_capacity(group), f"{id}: group {group} is full"
        head = queue.groups.head(group)
        assert head is entry, f"{id}: {head.record.id if head else None} stands before it in group {group}"
        queue.groups.take(group)
    queue.groups_next = group is None


def _set_damaged_aside(store: MemoryStore, queue: JobQueue, now: datetime) -> None:
    for entry in [entry for entry in store.entries.values() if entry.queue is queue and damage_of(entry) is not None]:
        if entry.standing in DUE:
            store.set_aside(entry, now)
    store.set_unmet_aside(now)
