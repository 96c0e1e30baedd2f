"""Queues: counts, how long the oldest ready job waits, who serves them, how fast they go.

A page of rows costs six calls for all queues, and one more for each that gets a row. So the cost grows with the rows of
a page, and neither with the number of queues nor with that of jobs; beside many queues, each is counted less far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import read_counts, read_heads, read_waiting
from taskharbor.model.bounds import check_name
from taskharbor.model.histogram import merged
from taskharbor.model.job import Figures, QueueHead, State, WorkerInfo
from taskharbor.store.audit import audited

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

PAGE_QUEUES = 100
MAX_OTHERS = 500  # queues without a row of which it is read since when they wait
RATE_SPAN = timedelta(minutes=5)
MAX_EXACT_JOBS = 100_000  # of a queue in one state, for a caller that wants a number: a store may hold millions
CAP_JOBS = 10_000  # counted of a queue in one state, at most
MIN_CAP_JOBS = 10
MAX_COUNTED_JOBS = 200_000  # in one state, over all queues: many queues are counted less far each
PAUSE_IN_DOUBT = "The queue may or may not be paused; call again: that does no harm"
_BUSY = (State.READY, State.INFLIGHT, State.DLQ)


def cap_for(queues: int) -> int:
    """How far the jobs of one queue in one state are counted, beside this many queues.

    >>> cap_for(7), cap_for(45), cap_for(1_000), cap_for(1_000_000)
    (10000, 4000, 200, 10)
    """
    most = max(MIN_CAP_JOBS, min(CAP_JOBS, MAX_COUNTED_JOBS // max(queues, 1)))
    digits = str(most)
    return int(digits[0] + "0" * len(digits[1:]))  # a round number: "4,444+" looks exact


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue as it is now: whether it is paused, and how many jobs it has in which state (zeros left out).

    `oldest_ready_at`: since when the job is due that has been ready for longest; None if no job is ready. None also if
    the store cannot tell without reading much, as in a queue of very many groups: then `oldest_known` is False.
    """

    name: str  # its name
    paused: bool  # whether workers leave it alone
    counts: dict[str, int]  # how many jobs it has, by state
    oldest_ready_at: datetime | None = None
    oldest_known: bool = True  # False: it is not known whether a job waits, and since when


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
            "jobs": {state.value: self.counts.get(state, 0) for state in State},
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
class AllQueues:
    """What few calls say of all queues."""

    names: Sequence[str]
    counts: Mapping[str, Mapping[str, int]]
    cap: int
    workers: tuple[WorkerInfo, ...]

    @property
    def served(self) -> set[str]:
        """The queues that a worker serves."""
        return {queue for worker in self.workers for queue in worker.queues}


async def read_all_queues(driver: Driver, now: datetime, cap: int | None = None) -> AllQueues:
    """The queues that hold a job or are paused, by name; how many jobs they have, counted to `cap`."""
    known = await driver.queues()
    cap = cap_for(len(known)) if cap is None else cap
    counts = await read_counts(driver, now, cap)
    return AllQueues(sorted({*known, *counts}), counts, cap, tuple(await driver.workers(now)))


async def read_queues(driver: Driver, now: datetime) -> list[QueueInfo]:
    """The queues that hold a job or are paused, in the order of their names."""
    seen = await read_all_queues(driver, now, MAX_EXACT_JOBS)
    return [
        QueueInfo(row.name, row.paused, dict(row.counts), row.oldest_at, row.lag_known)
        for row in await read_standings(driver, now, seen, seen.names)
    ]


async def read_queue_rows(
    driver: Driver, now: datetime, only: str | None = None, *, after: str = "", limit: int = PAGE_QUEUES
) -> QueueRows:
    """A page of queues by name, after the name `after`; or one of them: one that holds no job and is not paused has a
    row of zeros."""
    seen = await _with_served(driver, now)
    if only is not None:
        seen = replace(seen, names=[only])
    page = [name for name in seen.names if name > after or only is not None]
    cursor = page[limit - 1] if len(page) > limit else None
    return await _rows(driver, now, seen, page[:limit], cursor)


async def read_busiest_rows(driver: Driver, now: datetime, limit: int) -> QueueRows:
    """The queues with the most jobs that wait, run or died, by name; all of them if there are at most `limit`. Of the
    others only since when they wait: the oldest job may be in any queue."""
    seen = await _with_served(driver, now)
    names = _busiest(seen.names, seen.counts)
    rows = await _rows(driver, now, seen, sorted(names[:limit]), None)
    waiting = [name for name in names[limit:] if seen.counts.get(name, {}).get(State.READY)]
    heads = await read_heads(driver, waiting[:MAX_OTHERS], now) if waiting else {}
    return replace(rows, others=tuple(heads.get(name) or QueueHead(name, oldest_known=False) for name in waiting))


async def _with_served(driver: Driver, now: datetime) -> AllQueues:
    """All queues, with those that hold nothing but have a worker."""
    seen = await read_all_queues(driver, now)
    return replace(seen, names=sorted({*seen.names, *seen.served}))


def _busiest(names: Sequence[str], counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    return sorted(names, key=lambda name: -sum(counts.get(name, {}).get(state, 0) for state in _BUSY))


async def _rows(driver: Driver, now: datetime, seen: AllQueues, shown: Sequence[str], cursor: str | None) -> QueueRows:
    rows = await read_standings(driver, now, seen, shown, await _recent(driver, now))
    counted = {name: seen.counts.get(name, {}) for name in seen.names}
    served = seen.served
    return QueueRows(
        now,
        tuple(rows),
        seen.workers,
        tuple(_busiest(seen.names, counted)),
        cursor,
        {state.value: sum(states.get(state, 0) for states in counted.values()) for state in State},
        frozenset(state for states in counted.values() for state, number in states.items() if number >= seen.cap),
        {name: states["ready"] for name, states in counted.items() if states.get("ready") and name not in served},
    )


async def _recent(driver: Driver, now: datetime) -> dict[str, Mapping[str, int]]:
    by_queue: dict[str, list[Figures]] = {}
    for row in await driver.figures(now - RATE_SPAN, now):
        by_queue.setdefault(row.queue, []).append(row)
    return {queue: merged(rows) for queue, rows in by_queue.items()}


async def read_standings(
    driver: Driver,
    now: datetime,
    seen: AllQueues,
    names: Sequence[str],
    recent: Mapping[str, Mapping[str, int]] | None = None,
) -> list[QueueStanding]:
    """These queues, one by one. `recent`: the figures of RATE_SPAN by queue, if they are wanted."""
    rows = []
    for name, head in (await read_waiting(driver, seen.counts, names, now)).items():
        serving = [worker for worker in seen.workers if name in worker.queues]
        figures = (recent or {}).get(name, {})
        rows.append(
            QueueStanding(
                name,
                await driver.is_paused(name),
                seen.counts.get(name, {}),
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
        )
    return rows


async def pause(call: StoreCall, queue: str, by: str | None) -> None:
    """Stop workers from taking jobs of a queue; who did it is in the audit."""
    check_name(queue, "queue")
    await audited(call, "pause", by, lambda driver: driver.pause(queue), PAUSE_IN_DOUBT, target=queue)


async def resume(call: StoreCall, queue: str, by: str | None) -> None:
    """Let workers take jobs of a queue again; who did it is in the audit."""
    check_name(queue, "queue")
    await audited(call, "resume", by, lambda driver: driver.resume(queue), PAUSE_IN_DOUBT, target=queue)
