"""What an operation over many jobs would change, before a person agrees to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo
from taskharbor.store.diagnose import held_after_requeue
from taskharbor.store.jobs import read_records

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
    sample = await read_records(driver, [info.job.id for info in found.sample[:shown]], now)
    notes: list[str] = []
    if action == "requeue":
        served = {queue for worker in await driver.workers(now) for queue in worker.queues}
        for queue in sorted({info.job.queue for info in found.sample}):
            held = held_after_requeue(queue, await driver.is_paused(queue), queue in served, many=True)
            notes += [each.text for each in held]
    return Preview(found, sample, notes)
