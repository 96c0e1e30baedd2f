"""The heads of queues: what comes next, and since when the oldest ready job waits.

It walks over the ready jobs of a queue: they are in memory, and nothing has to be kept for it on the way of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import chain, islice

from taskharbor.drivers.heads import in_turn
from taskharbor.drivers.memory.queue import JobQueue, Line
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.job import QueueHead


def heads(store: MemoryStore, names: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    """The head of each of these queues, in their order."""
    found = []
    for name in names:
        queue = store.queues.get(name)
        if queue is None:
            found.append(QueueHead(name))
        else:
            queue.move(now)
            due = chain.from_iterable(line.places for line in queue.lines())
            oldest = min((entry.waits_since for entry in due), default=None)
            found.append(QueueHead(name, oldest, _next(queue, n) if n else ()))
    return found


def _next(queue: JobQueue, n: int) -> tuple[str, ...]:
    groups = [queue.groups[name] for name in islice(queue.turns, n)]
    members = [_first(group.due, min(n, group.capacity)) for group in groups]
    return in_turn(_first(queue.ungrouped, n), members, queue.groups_next, n)


def _first(line: Line, n: int) -> list[str]:
    return [entry.record.id for entry in nsmallest(n, line.places, key=line.places.__getitem__)]
