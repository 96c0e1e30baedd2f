"""The slots of a schedule up to a moment, in bounded steps."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from taskharbor.policy.slots import count_slots, last_slot, next_slot, slots_between
from taskharbor.schedules.body import Schedule

MAX_STEP_SLOTS = 1_000
"""How many slots are decided in one step: finding one may take 20 µs, and a worker has other things to do."""

MAX_COUNTED_SLOTS = 10_000
"""Slots of a cron expression that a person's change leaves behind are counted up to here."""


class Passed(NamedTuple):
    """Slots that are due, and the newest of them. `more`: there are still newer ones, which are not counted."""

    slots: int
    newest: datetime | None
    more: bool


def next_of(schedule: Schedule) -> datetime | None:
    """The first slot that was not decided yet; None if there is none, or while the schedule is paused."""
    if schedule.body.paused:
        return None
    return next_slot(schedule.timing, schedule.body.reached)


def due_of(schedule: Schedule, now: datetime, most: int = MAX_STEP_SLOTS) -> tuple[list[datetime], bool]:
    """The slots that are due at `now`, oldest first, at most `most`; and whether there are more."""
    found = slots_between(schedule.timing, schedule.body.reached, now, limit=most + 1)
    return found[:most], len(found) > most


def passed_of(schedule: Schedule, now: datetime, most: int = MAX_STEP_SLOTS) -> Passed:
    """How many slots are due at `now`: those of an interval at once, those of a cron expression at most `most`."""
    if schedule.rule.every is None:
        due, more = due_of(schedule, now, most)
        return Passed(len(due), due[-1] if due else None, more)
    timing, reached = schedule.timing, schedule.body.reached
    return Passed(count_slots(timing, reached, now, cap=most), last_slot(timing, reached, now), False)


def preview_of(schedule: Schedule, now: datetime, count: int) -> list[datetime]:
    """The next slots, whether the schedule is paused or not."""
    reached = schedule.body.reached
    return slots_between(schedule.timing, max(now, reached) if schedule.body.paused else reached, limit=count)
