"""Queues as an operator reads them: counts, how long the oldest ready job waits, who serves it, how fast it goes.

Six calls for all queues, and one more for each that gets a row. So the cost grows with the rows of a page, and neither
with the number of queues nor with that of jobs; beside many queues, each is counted less far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import read_counts, read_heads, read_waiting
from taskharbor.model.histogram import merged
from taskharbor.model.job import Figures, QueueHead, State, WorkerInfo
from taskharbor.ops import json_output
from taskharbor.ops.counting import cap_for

PAGE_QUEUES = 100
MAX_OTHERS = 500  # queues without a row of which it is read since when they wait
RATE_SPAN = timedelta(minutes=5)
_BUSY = (State.READY, State.INFLIGHT, State.DLQ)


@dataclass(frozen=True)
class QueueStanding:
    """One queue at one moment. `lag`: since when its oldest ready job waits, as a span; None without one, and if the
    store cannot tell: then `lag_known` is False."""

    name: str
    paused: bool
    counts: Mapping[str, int]
    lag: timedelta | None = None
    workers: int = 0
    slots: int = 0
    running: int = 0
    done: int = 0  # in RATE_SPAN
    failed: int = 0
    cap: int = cap_for(1)  # a count that reaches it means "or more"
    oldest_at: datetime | None = None
    lag_known: bool = True

    @property
    def per_minute(self) -> float:
        """Jobs done in a minute, over the last five."""
        return self.done / (RATE_SPAN.total_seconds() / 60)

    @property
    def failure_share(self) -> float | None:
        """The share of executions that failed, from 0 to 1."""
        return self.failed / (self.done + self.failed) if self.done + self.failed else None

    @property
    def unserved(self) -> bool:
        """Whether jobs are ready that no worker takes."""
        return bool(self.counts.get("ready")) and not self.workers

    def as_json(self) -> dict[str, object]:
        """The row with the keys of `taskharbor queue list`."""
        return {
            "queue": self.name,
            "paused": self.paused,
            "workers": self.workers,
            "jobs": json_output.states(dict(self.counts)),
            "capped": any(number >= self.cap for number in self.counts.values()),
            "oldest_ready_at": self.oldest_at,
            "oldest_known": self.lag_known,
        }


@dataclass(frozen=True)
class QueueRows:
    """Some queues, all workers, and the totals of all queues at one moment. `names`: of all queues, the
    busiest first; `cursor`: the last name of these rows, if others follow; `unserved`: queues with ready jobs that no
    worker takes, and how many of them are ready."""

    at: datetime
    rows: tuple[QueueStanding, ...]
    workers: tuple[WorkerInfo, ...]
    names: tuple[str, ...] = ()
    cursor: str | None = None
    totals: Mapping[str, int] = field(default_factory=dict)
    capped_states: frozenset[str] = frozenset()
    unserved: Mapping[str, int] = field(default_factory=dict)
    others: tuple[QueueHead, ...] = ()  # queues with ready jobs and without a row

    @property
    def lag(self) -> timedelta | None:
        """The longest of all that are known."""
        waits = [*(row.lag for row in self.rows), *(head.waited(self.at) for head in self.others)]
        return max((wait for wait in waits if wait is not None), default=None)

    @property
    def lag_known(self) -> bool:
        """Whether it is known of every queue."""
        return all(row.lag_known for row in self.rows) and all(head.oldest_known for head in self.others)

    def capped(self, state: str) -> bool:
        """Whether the total of a state is a lower bound."""
        return state in self.capped_states


@dataclass(frozen=True)
class _AllQueues:
    """What few calls say of all queues."""

    names: Sequence[str]
    counts: Mapping[str, Mapping[str, int]]
    cap: int
    workers: tuple[WorkerInfo, ...]

    @property
    def served(self) -> set[str]:
        return {queue for worker in self.workers for queue in worker.queues}


async def read_queue_rows(
    driver: Driver, now: datetime, only: str | None = None, *, after: str = "", limit: int = PAGE_QUEUES
) -> QueueRows:
    """A page of queues by name, behind the name `after`; or one of them: one that holds no job and is not paused has a
    row of zeros."""
    seen = await _all_queues(driver, now)
    if only is not None:
        seen = replace(seen, names=[only])
    page = [name for name in seen.names if name > after or only is not None]
    cursor = page[limit - 1] if len(page) > limit else None
    return await _rows(driver, now, seen, page[:limit], cursor)


async def read_busiest_rows(driver: Driver, now: datetime, limit: int) -> QueueRows:
    """The queues with the most jobs that wait, run or died, by name; all of them if there are at most `limit`. Of the
    others only since when they wait: the oldest job may be in any queue."""
    seen = await _all_queues(driver, now)
    names = _busiest(seen.names, seen.counts)
    rows = await _rows(driver, now, seen, sorted(names[:limit]), None)
    waiting = [name for name in names[limit:] if seen.counts.get(name, {}).get(State.READY)]
    heads = await read_heads(driver, waiting[:MAX_OTHERS], now) if waiting else {}
    return replace(rows, others=tuple(heads.get(name) or QueueHead(name, oldest_known=False) for name in waiting))


def _busiest(names: Sequence[str], counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    return sorted(names, key=lambda name: -sum(counts.get(name, {}).get(state, 0) for state in _BUSY))


async def _all_queues(driver: Driver, now: datetime) -> _AllQueues:
    known = await driver.queues()
    cap = cap_for(len(known))
    counts = await read_counts(driver, now, cap)
    workers = tuple(await driver.workers(now))
    served = {queue for worker in workers for queue in worker.queues}
    return _AllQueues(sorted({*known, *counts, *served}), counts, cap, workers)


async def _rows(driver: Driver, now: datetime, seen: _AllQueues, shown: Sequence[str], cursor: str | None) -> QueueRows:
    recent = await _recent(driver, now)
    counted = {name: seen.counts.get(name, {}) for name in seen.names}
    waiting = await read_waiting(driver, counted, shown, now)
    rows = [await _row(driver, now, head, counted[name], seen, recent) for name, head in waiting.items()]
    served = seen.served
    return QueueRows(
        now,
        tuple(rows),
        seen.workers,
        tuple(_busiest(seen.names, counted)),
        cursor,
        {state: sum(states.get(state, 0) for states in counted.values()) for state in json_output.STATES},
        frozenset(state for states in counted.values() for state, number in states.items() if number >= seen.cap),
        {name: states["ready"] for name, states in counted.items() if states.get("ready") and name not in served},
    )


async def _recent(driver: Driver, now: datetime) -> dict[str, Mapping[str, int]]:
    found = await driver.figures(now - RATE_SPAN, now)
    by_queue: dict[str, list[Figures]] = {}
    for row in found:
        by_queue.setdefault(row.queue, []).append(row)
    return {queue: merged(rows) for queue, rows in by_queue.items()}


async def _row(
    driver: Driver,
    now: datetime,
    head: QueueHead,
    counts: Mapping[str, int],
    seen: _AllQueues,
    recent: Mapping[str, Mapping[str, int]],
) -> QueueStanding:
    name = head.queue
    serving = [worker for worker in seen.workers if name in worker.queues]
    figures = recent.get(name, {})
    return QueueStanding(
        name,
        await driver.is_paused(name),
        counts,
        head.waited(now),
        len(serving),
        sum(worker.concurrency for worker in serving),
        sum(worker.running for worker in serving),
        figures.get("done", 0),
        figures.get("failed", 0),
        seen.cap,
        head.oldest_at,
        head.oldest_known,
    )
