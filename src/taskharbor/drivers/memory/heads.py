"""The heads of queues: what comes next, and since when the oldest ready job waits.

It walks over the ready jobs of a queue: they are in memory, and nothing has to be kept for it on the way of a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import chain

from taskharbor.drivers.heads import in_turn
from taskharbor.drivers.memory.heaps import EntryHeap
from taskharbor.drivers.memory.queue import JobQueue
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.model.job import QueueHead
from taskharbor.model.times import from_us, to_us


def heads(store: MemoryStore, names: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    """The head of each of these queues, in their order."""
    moment, found = to_us(now), []
    for name in names:
        queue = store.queues.get(name)
        if queue is None:
            found.append(QueueHead(name))
        else:
            queue.move(moment)
            found.append(QueueHead(name, _oldest(queue), _next(queue, n) if n else ()))
    return found


def _oldest(queue: JobQueue) -> datetime | None:
    lines = (queue.ungrouped, *queue.groups)
    times = (item[-1].time for item in chain.from_iterable(line.items() for line in lines))
    oldest = min(times, default=None)
    return None if oldest is None else from_us(oldest)


def _next(queue: JobQueue, n: int) -> tuple[str, ...]:
    runnable = [group for group in queue.groups.turns if group.has_capacity() and group.peek() is not None]
    groups = [_first(group, min(n, group.limit - group.inflight)) for group in runnable[:n]]
    return in_turn(_first(queue.ungrouped, n), groups, queue.groups_next, n)


def _first(line: EntryHeap, n: int) -> list[str]:
    return [item[-1].record.id for item in nsmallest(n, line.items())]
