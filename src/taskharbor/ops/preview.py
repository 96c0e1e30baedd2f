"""What an operation over many jobs would change, before a person agrees to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo
from taskharbor.ops.dead_kinds import whole_records
from taskharbor.ops.text import one_line

if TYPE_CHECKING:
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.operation import DryRun
    from taskharbor.ops.actions import Actions

SAMPLE_JOBS = 5


@dataclass(frozen=True)
class Preview:
    """What an operation would change, and what would keep its jobs from running afterwards."""

    found: DryRun
    sample: list[JobInfo]  # with their payloads, which are masked in their errors
    notes: list[str]


async def read_preview(
    driver: Driver, now: datetime, actions: Actions, jobs: Jobs, action: str, **options: Any
) -> Preview:
    """Look at what an operation would change; the options are those of the operation."""
    found = await actions.dry_run(jobs, action, **options)
    shown = min(SAMPLE_JOBS, options.get("limit") or SAMPLE_JOBS)
    sample = await whole_records(driver, now, found.sample[:shown])
    notes = await _notes(driver, now, found.sample) if action == "requeue" else []
    return Preview(found, sample, notes)


async def _notes(driver: Driver, now: datetime, jobs: Sequence[JobInfo]) -> list[str]:
    """What keeps the jobs from running once they are back, for the queues of a sample."""
    workers = await driver.workers(now)
    notes = []
    for queue in sorted({info.job.queue for info in jobs}):
        if await driver.is_paused(queue):
            notes.append(f"the queue {one_line(queue)} is paused: its jobs wait until it is resumed")
        if not any(queue in worker.queues for worker in workers):
            notes.append(f"no worker serves the queue {one_line(queue)} now: its jobs wait for one")
    return notes
