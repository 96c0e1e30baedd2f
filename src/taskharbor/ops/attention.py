"""What needs an operator, the most urgent first: the list at the top of an overview.

Each point says in one sentence what is wrong, and names where to look. The cost is bounded: of the jobs that died in
the last hour those with the highest and those with the lowest ids, because what died now may have been enqueued long
ago; one page of waiting types, one of schedules, and a look for those that are due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo, QueueHead, State, WorkerInfo
from taskharbor.ops.dead_kinds import read_kind
from taskharbor.ops.doctor import check_types
from taskharbor.ops.schedule_view import OVERDUE_AFTER
from taskharbor.store.diagnose import named
from taskharbor.store.queues import CAP_JOBS, QueueRows
from taskharbor.store.situation import SINCE_EVER
from taskharbor.store.summary import summarise
from taskharbor.store.text import format_duration, one_line, plural, relative

RECENT = timedelta(hours=1)
PAGE_DEAD = 1_000  # with the highest ids, and as many with the lowest
MAX_KINDS = 4
MAX_NAMED = 3
PAGE_SCHEDULES = 100
MAX_DUE_QUEUES = 1_000
MAX_UNSERVED = 5  # queues without a worker that get a point of their own
MAX_PAUSED_LOOKS = 40  # at queues without a row of the overview: those that wait for longest
SILENT_FOR = timedelta(minutes=1)


@dataclass(frozen=True, repr=False)
class AttentionPoint:
    """One thing that needs an operator. `level`: problem, warning or note; `about`: the page, and what on it."""

    code: str
    level: str
    text: str
    detail: str = ""
    page: str = ""
    about: str = ""


async def read_attention(
    driver: Driver, now: datetime, found: QueueRows, declared: frozenset[str] | None
) -> list[AttentionPoint]:
    """What needs an operator now."""
    points = [*await _dead(driver, now, found), *_queues(found, await _paused_beside(driver, found))]
    points += await _schedules(driver, now, found)
    points += _workers(found, await _silent(driver, found))
    if declared is not None:
        points += [
            AttentionPoint("unknown_type", "warning", check.text, page="jobs", about="state=ready")
            for check in await check_types(driver, declared, "this application", now)
        ]
    order = {"problem": 0, "warning": 1, "note": 2}
    return sorted(points, key=lambda point: order[point.level])


async def _dead(driver: Driver, now: datetime, found: QueueRows) -> list[AttentionPoint]:
    if not found.totals.get("dlq"):
        return []
    died: dict[str, Any] = {"state": State.DLQ, "since": now - RECENT, "limit": PAGE_DEAD, "payloads": False}
    page = await driver.list(order="-id", now=now, **died)
    first = await driver.list(now=now, **died) if page.cursor is not None else page
    recent: Sequence[JobInfo] = list({info.job.id: info for info in (*first.items, *page.items)}.values())
    complete = page.cursor is None
    if not recent:
        number = f"{_number(found, 'dlq')} dead jobs"
        if complete:
            return [AttentionPoint("dead", "note", f"{number}, none of them in the last hour", page="dead")]
        text = f"{number}: too many to tell whether any of them died in the last hour"
        return [AttentionPoint("dead", "warning", text, page="dead")]
    points = []
    rows = summarise(recent, "fingerprint").rows
    for row in rows[:MAX_KINDS]:
        kind = await read_kind(driver, now, row)
        job = kind.sample.job
        what = f"{row.n:,}{'' if complete else '+'} × {one_line(job.error_class or 'dead')}"
        text = f"{what} in {one_line(job.type)}, newest {relative(row.newest, now)}"
        points.append(AttentionPoint("dead_kind", "problem", text, kind.error, "dead", row.value))
    if not complete:
        text = "More died in the last hour than are counted here; Dead letters counts further"
        points.append(AttentionPoint("dead", "warning", text, page="dead"))
    if len(rows) > MAX_KINDS:
        text = f"{len(rows) - MAX_KINDS} more kinds of dead jobs in the last hour"
        points.append(AttentionPoint("dead", "warning", text, page="dead"))
    return points


async def _paused_beside(driver: Driver, found: QueueRows) -> list[QueueHead]:
    """Queues with ready jobs and without a row that are paused."""
    longest = sorted(found.others, key=lambda head: head.waited(found.at) or timedelta(), reverse=True)
    return [head for head in longest[:MAX_PAUSED_LOOKS] if await driver.is_paused(head.queue)]


def _queues(found: QueueRows, beside: Sequence[QueueHead]) -> list[AttentionPoint]:
    points, lags = [], {row.name: row.lag for row in found.rows}
    lags |= {head.queue: head.waited(found.at) for head in found.others}
    paused = {row.name for row in found.rows if row.paused} | {head.queue for head in beside}
    cap = found.rows[0].cap if found.rows else CAP_JOBS
    for row in found.rows:
        if row.paused:
            ready = row.counts.get("ready", 0)
            number = f"{_counted(ready, cap)} job{'' if ready == 1 else 's'} ready" if ready else "no jobs are ready"
            text = f"Queue {one_line(row.name)} is paused: {number}{_waits(row.lag)}"
            points.append(AttentionPoint("paused", "warning", text, page="queues", about=row.name))
    for head in beside:
        text = f"Queue {one_line(head.queue)} is paused{_waits(lags[head.queue])}"
        points.append(AttentionPoint("paused", "warning", text, page="queues", about=head.queue))
    alone = sorted((name for name in found.unserved if name not in paused), key=lambda name: -found.unserved[name])
    for name in alone[:MAX_UNSERVED]:
        number = _counted(found.unserved[name], cap)
        text = f"No worker serves queue {one_line(name)}: {number} ready{_waits(lags.get(name))}"
        points.append(AttentionPoint("no_worker", "problem", text, page="queues", about=name))
    if len(alone) > MAX_UNSERVED:
        text = f"No worker serves {len(alone) - MAX_UNSERVED:,} more queues with ready jobs"
        points.append(AttentionPoint("no_worker", "problem", text, page="queues"))
    return points


def _counted(number: int, cap: int) -> str:
    return f"{number:,}{'+' if number >= cap else ''}"


def _waits(lag: timedelta | None) -> str:
    return "" if lag is None else f"; the oldest job waits for {format_duration(lag)}"


async def _schedules(driver: Driver, now: datetime, found: QueueRows) -> list[AttentionPoint]:
    """Schedules that are due, and that no worker fires. One in a queue without a job may be missing among many."""
    first = await driver.schedules(limit=PAGE_SCHEDULES)
    if not first.items:
        return []
    queues = sorted({*found.names[:MAX_DUE_QUEUES], *(row.queue for row in first.items)})
    late = await driver.due_schedules(queues, now - OVERDUE_AFTER, limit=MAX_NAMED + 1)
    if not late.items:
        return []
    names = ", ".join(one_line(row.name) for row in late.items[:MAX_NAMED])
    more = " and more" if len(late.items) > MAX_NAMED else ""
    text = f"Overdue: {names}{more}; no worker fires what is scheduled"
    return [AttentionPoint("overdue", "problem", text, page="schedules")]


async def _silent(driver: Driver, found: QueueRows) -> list[WorkerInfo]:
    """Workers that neither stopped nor sent a heartbeat lately."""
    alive = {worker.worker for worker in found.workers}
    known = await driver.workers(SINCE_EVER)
    return [worker for worker in known if worker.worker not in alive and worker.stopped_at is None]


def _workers(found: QueueRows, silent: Sequence[WorkerInfo]) -> list[AttentionPoint]:
    points = []
    lost = [worker for worker in silent if found.at - worker.seen_at >= SILENT_FOR]
    if lost:
        text = f"{plural(len(lost), 'worker')} fell silent without stopping"
        points.append(
            AttentionPoint("silent", "warning", text, named([worker.worker for worker in lost], MAX_NAMED), "workers")
        )
    stuck = sum(worker.stuck for worker in found.workers)
    if stuck:
        text = f"{plural(stuck, 'slot')} occupied by functions past their timeout"
        points.append(AttentionPoint("slots_stuck", "warning", text, page="workers"))
    return points


def _number(found: QueueRows, state: str) -> str:
    return f"{found.totals.get(state, 0):,}{'+' if found.capped(state) else ''}"
