"""The heads of queues: what comes next, and since when the oldest ready job waits. It changes nothing.

Yours must look at few rows, whatever waits: it finds both at the head of the index that `reserve` reads, and says
`oldest_known=False` or `next_known=False` where that would take too many lookups. It never reads a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import datetime, timedelta

from taskharbor.drivers import QueueHead, State
from taskharbor.drivers.heads import check_next
from taskharbor_mystore.reserve import reserve
from taskharbor_mystore.store import Store


def heads(store: Store, queues: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    check_next(n)
    return [QueueHead(queue, _oldest(store, queue, now), _next(store, queue, now, n)) for queue in queues]


def _oldest(store: Store, queue: str, now: datetime) -> datetime | None:
    ready = [row for row in store.rows.values() if row.record.queue == queue and row.state_at(now) is State.READY]
    return min((row.place()[1] for row in ready), default=None)


def _next(store: Store, queue: str, now: datetime, n: int) -> tuple[str, ...]:
    """What reserves of one job each would return: tried on a copy, because this store is small."""
    trial = Store()
    trial.rows = {id: copy(row) for id, row in store.rows.items() if row.record.queue == queue}
    trial.group_limits, trial.served, trial.number = store.group_limits, dict(store.served), store.number
    found: list[str] = []
    while len(found) < n and (taken := reserve(trial, [queue], now, timedelta(days=1), 1, "")):
        found.append(taken[0].job.id)
    return tuple(found)
