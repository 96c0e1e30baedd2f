"""The jobs of a schedule. That of a slot follows from the schedule and the slot alone, except for `created_at`.

So every worker that makes the job of a slot makes the same one, and a store that has it stores nothing.
"""

from __future__ import annotations

from datetime import datetime

from taskharbor.model.job import JobRecord
from taskharbor.model.schedule import SCHEDULE_KEY, SLOT_KEY
from taskharbor.policy.slots import jitter_of, slot_id
from taskharbor.schedules.body import Definition
from taskharbor.schedules.rule import Rule


def slot_record(name: str, definition: Definition, rule: Rule, slot: datetime, now: datetime) -> JobRecord:
    """The job of a slot, made at `now`."""
    run_at = slot + jitter_of(name, slot, rule.jitter) if rule.jitter else slot
    return record(name, definition, slot, slot_id(name, slot), run_at, now)


def record(
    name: str, definition: Definition, slot: datetime, id: str, run_at: datetime | None, now: datetime
) -> JobRecord:
    """A job of a schedule that stands for a moment."""
    return JobRecord(
        id=id,
        type=definition.type,
        queue=definition.queue,
        payload=definition.payload,
        run_at=run_at,
        timeout=definition.timeout,
        priority=definition.priority,
        max_attempts=definition.max_attempts,
        group=definition.group,
        group_limit=definition.group_limit,
        metadata={**definition.metadata, SCHEDULE_KEY: name, SLOT_KEY: slot.isoformat()},
        created_at=now,
    )
