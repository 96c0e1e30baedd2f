"""Queues as an operator reads them: counts, how long the oldest ready job waits, who serves it, how fast it goes.

Three calls for all queues, and at most two more for each: so the cost grows with the number of queues, and not with the
number of jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from taskharbor.drivers.contract import Driver
from taskharbor.drivers.features import FIGURES, offers
from taskharbor.model.histogram import merged
from taskharbor.model.job import JobRecord, State, WorkerInfo
from taskharbor.ops import json_output
from taskharbor.ops.counting import read_counts
from taskharbor.ops.ids import without_payloads

CAP_JOBS = 10_000  # counted of a queue in one state
MAX_QUEUES = 200
SAMPLE_JOBS = 10  # ready jobs with the lowest ids, among which the oldest is taken
RATE_SPAN = timedelta(minutes=5)


@dataclass(frozen=True)
class QueueStanding:
    """One queue at one moment. `lag`: since when its oldest ready job waits, as a span; None without one."""

    name: str
    paused: bool
    counts: Mapping[str, int]
    lag: timedelta | None = None
    workers: int = 0
    slots: int = 0
    running: int = 0
    done: int = 0  # in RATE_SPAN
    failed: int = 0

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
            "capped": any(number >= CAP_JOBS for number in self.counts.values()),
        }


@dataclass(frozen=True)
class QueueRows:
    """All queues and workers at one moment. `more`: queues that are not among the rows."""

    at: datetime
    rows: tuple[QueueStanding, ...]
    workers: tuple[WorkerInfo, ...]
    more: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)

    @property
    def lag(self) -> timedelta | None:
        """The longest of all."""
        return max((row.lag for row in self.rows if row.lag is not None), default=None)

    def capped(self, state: str) -> bool:
        """Whether the total of a state is a lower bound."""
        return any(row.counts.get(state, 0) >= CAP_JOBS for row in self.rows)


async def read_queue_rows(driver: Driver, now: datetime, only: str | None = None) -> QueueRows:
    """All queues, or one of them; one that holds no job and is not paused has a row of zeros."""
    counts = await read_counts(driver, now, CAP_JOBS)
    workers = tuple(await driver.workers(now))
    served = {queue for worker in workers for queue in worker.queues}
    names = sorted({*await driver.queues(), *counts, *served}) if only is None else [only]
    recent = await _recent(driver, now)
    rows = [await _row(driver, now, name, counts.get(name, {}), workers, recent) for name in names[:MAX_QUEUES]]
    shown = counts if only is None else {only: counts.get(only, {})}
    totals = {state: sum(states.get(state, 0) for states in shown.values()) for state in json_output.STATES}
    return QueueRows(now, tuple(rows), workers, max(0, len(names) - MAX_QUEUES), totals)


async def _recent(driver: Driver, now: datetime) -> dict[str, Mapping[str, int]]:
    if not offers(driver, FIGURES):
        return {}
    found = await driver.figures(now - RATE_SPAN, now)  # type: ignore[attr-defined]  # it offers them
    by_queue: dict[str, list[object]] = {}
    for row in found:
        by_queue.setdefault(row.queue, []).append(row)
    return {queue: merged(rows) for queue, rows in by_queue.items()}  # type: ignore[arg-type]  # rows of figures


async def _row(
    driver: Driver,
    now: datetime,
    name: str,
    counts: Mapping[str, int],
    workers: Sequence[WorkerInfo],
    recent: Mapping[str, Mapping[str, int]],
) -> QueueStanding:
    lag = await _lag(driver, now, name) if counts.get(State.READY) else None
    serving = [worker for worker in workers if name in worker.queues]
    figures = recent.get(name, {})
    return QueueStanding(
        name,
        await driver.is_paused(name),
        counts,
        lag,
        len(serving),
        sum(worker.concurrency for worker in serving),
        sum(worker.running for worker in serving),
        figures.get("done", 0),
        figures.get("failed", 0),
    )


async def _lag(driver: Driver, now: datetime, queue: str) -> timedelta | None:
    page = await driver.list(queue=queue, state=State.READY, limit=SAMPLE_JOBS, now=now, **without_payloads(driver))
    since = min((_waits_since(info.job) for info in page.items), default=None)
    return None if since is None else max(now - since, timedelta())


def _waits_since(job: JobRecord) -> datetime:
    return max(moment for moment in (job.created_at, job.run_at, job.failed_at) if moment is not None)
