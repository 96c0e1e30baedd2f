"""One word for each job of a list: why it waits.

`read_waits` reads what the rows of one page need, in a bounded number of calls; `word_for` is pure. The whole answer
for one job, with what helps, is in `ops/explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo, State, WorkerInfo
from taskharbor.ops.timefmt import format_duration
from taskharbor.tasks.flow_metadata import JOIN_TYPE

MAX_QUEUES = 25  # of one page whose pause is looked up
MAX_GROUPS = 8  # of one page whose running jobs are counted
MAX_RUNNING = 50  # jobs of one group


@dataclass(frozen=True)
class WaitFacts:
    """What holds up the jobs of one page."""

    now: datetime
    paused: frozenset[str] = frozenset()
    workers: tuple[WorkerInfo, ...] = ()
    full: frozenset[tuple[str, str]] = frozenset()  # queue and group
    declared: frozenset[str] | None = None


@dataclass(frozen=True)
class WaitWord:
    """Why a job waits. `code` is one of those of `taskharbor explain`; `held`: an operator may have to help."""

    code: str
    word: str
    held: bool = False


async def read_waits(
    driver: Driver,
    now: datetime,
    jobs: Sequence[JobInfo],
    declared: frozenset[str] | None = None,
    *,
    are_next: bool = False,
) -> WaitFacts:
    """Read what `word_for` needs for these jobs: at most 34 calls, and none if no job waits.

    `are_next`: `heads` returned them, so that their groups have room.
    """
    waiting = [info for info in jobs if info.state in (State.READY, State.SCHEDULED, State.BLOCKED)]
    if not waiting:
        return WaitFacts(now, declared=declared)
    queues = list(dict.fromkeys(info.job.queue for info in waiting))[:MAX_QUEUES]
    paused = frozenset([queue for queue in queues if await driver.is_paused(queue)])
    full = await _full_groups(driver, now, [] if are_next else waiting)
    return WaitFacts(now, paused, tuple(await driver.workers(now)), full, declared)


async def _full_groups(driver: Driver, now: datetime, jobs: Iterable[JobInfo]) -> frozenset[tuple[str, str]]:
    limits: dict[tuple[str, str], int] = {}
    for info in jobs:
        if info.state is State.READY and info.job.group is not None:
            limits.setdefault((info.job.queue, info.job.group), info.job.group_limit or 1)
    full = set()
    for (queue, group), limit in list(limits.items())[:MAX_GROUPS]:
        page = await driver.list(
            queue=queue,
            group=group,
            state=State.INFLIGHT,
            limit=min(limit, MAX_RUNNING),
            now=now,
            payloads=False,
        )
        if len(page.items) >= limit:
            full.add((queue, group))
    return frozenset(full)


def word_for(info: JobInfo, seen: WaitFacts) -> WaitWord | None:
    """Why this job waits; None for one that runs or has ended."""
    job = info.job
    if info.state is State.BLOCKED:
        number = len(info.waiting_for)
        return WaitWord("blocked", f"waits for {number} job{'' if number == 1 else 's'}" if number else "waits")
    if info.state is State.SCHEDULED:
        return _scheduled(info, seen)
    if info.state is not State.READY:
        return None
    if seen.declared is not None and job.type not in seen.declared and job.type != JOIN_TYPE and not job.deliveries:
        return WaitWord("unknown_type", "unknown type", True)
    if job.queue in seen.paused:
        return WaitWord("paused", "paused", True)
    if job.group is not None and (job.queue, job.group) in seen.full:
        return WaitWord("group_full", "group full")
    serving = [worker for worker in seen.workers if job.queue in worker.queues]
    if not serving:
        return WaitWord("no_worker", "no worker", True)
    if all(worker.concurrency and worker.running >= worker.concurrency for worker in serving):
        return WaitWord("workers_busy", "workers busy")
    return WaitWord("next", "next")


def _scheduled(info: JobInfo, seen: WaitFacts) -> WaitWord:
    job = info.job
    due = "due" if job.run_at is None or job.run_at <= seen.now else f"in {format_duration(job.run_at - seen.now)}"
    if job.queue in seen.paused:
        return WaitWord("paused", "paused", True)
    if job.attempts:
        return WaitWord("retry_not_due", f"retry {due}")
    return WaitWord("given_back" if job.deliveries else "not_due", due)
