"""What follows from a due schedule at a moment: jobs for its slots, or none, and the row as it is afterwards. Pure.

    slots behind `reached` up to now ─► more than a step: the oldest of them, the rest in the next step
                                     └► by catch_up: which of them get a job; the others are missed
                                        by overlap: none of them, while an earlier job has not ended; they are skipped

The row moves and the jobs are stored in one change, which the store makes only if the row is still the one that was
read. So a slot gets at most one job, however many workers plan it at the same time. The job of a slot follows from the
schedule and the slot alone, except for `created_at`: every worker makes the same one, and a store that has it stores
nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from taskharbor.model.job import JobRecord
from taskharbor.model.schedule import SCHEDULE_KEY, SLOT_KEY, ScheduleChange, StoredSchedule
from taskharbor.policy.slots import count_slots, jitter_of, last_slot, next_slot, slot_id, slots_between
from taskharbor.schedules.body import Definition, Schedule, write_body
from taskharbor.schedules.rule import CatchUp, Overlap, Rule

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
    """The first slot that was not decided yet; None if there is none, or while it is paused or deleted."""
    if schedule.body.paused or schedule.body.deleted:
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


AHEAD = timedelta(minutes=1)
"""Clocks of workers that work together differ by less. A schedule within it of the clock is as it should be."""


def is_ahead(schedule: Schedule, now: datetime) -> bool:
    """Whether slots were decided more than an interval before their time: a clock was ahead, and is no longer."""
    reached, every = schedule.body.reached, schedule.rule.every
    if reached - now <= AHEAD:
        return False
    if every is not None:
        return reached - now > every
    try:
        coming = next_slot(schedule.timing, now)
    except (ValueError, TypeError, OverflowError):  # this machine cannot follow the rule
        return False
    return coming is not None and coming < reached


def arrived(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule without the slots that a clock which was ahead has decided, once their time has come."""
    to = schedule.body.decided_to
    if to is None or now < to:
        return schedule
    return schedule.with_state(reached=max(schedule.body.reached, to), decided_to=None)


def preview_of(schedule: Schedule, now: datetime, count: int) -> list[datetime]:
    """The next slots, whether the schedule is paused or not."""
    reached = schedule.body.reached
    return slots_between(schedule.timing, max(now, reached) if schedule.body.paused else reached, limit=count)


IN_TIME = timedelta(minutes=1)
"""With `catch_up="none"` a slot gets a job if it is at most this late."""

MAX_STEP_BYTES = 4 * 1024 * 1024
"""Bytes of the payloads of the jobs that one step makes, together; a step makes at least one job."""


MAX_WATCHED_JOBS = 20
"""How many jobs of slots are watched for their end, and how many of those that people asked for."""


class FiringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A change to make, and what to report once it was made. `behind`: more slots are due already."""

    change: ScheduleChange
    schedule: Schedule  # as it is then
    planned_at: datetime
    next_at: datetime | None
    fired: tuple[datetime, ...] = ()
    missed: int = 0
    skipped: int = 0
    behind: bool = False

    @property
    def jobs(self) -> tuple[JobRecord, ...]:
        """The jobs that the change stores."""
        return self.change.jobs


def new_revision() -> str:
    """A text for one version of a row, which no other version of any row has."""
    return secrets.token_hex(12)


def watched(running: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """The jobs of slots to watch after new ones were made: of too many the oldest, which others wait behind, and the
    newest, which end last."""
    both, half = (*running, *new), MAX_WATCHED_JOBS // 2
    return both if len(both) <= MAX_WATCHED_JOBS else both[:half] + both[-half:]


def stored(name: str, schedule: Schedule) -> StoredSchedule:
    """A row for this version of a schedule: due at the first slot that is not decided."""
    return stored_until(name, schedule, next_of(schedule))


def stored_until(name: str, schedule: Schedule, next_at: datetime | None) -> StoredSchedule:
    """A row for this version of a schedule, which is due at a moment that the caller knows."""
    return StoredSchedule(
        name=name, queue=schedule.definition.queue, revision=new_revision(), next_at=next_at, body=write_body(schedule)
    )


def looks_at(schedule: Schedule) -> tuple[str, ...]:
    """The jobs that keep the due slots from getting one, as long as one of them has not ended."""
    body = schedule.body
    if schedule.rule.overlap is not Overlap.SKIP or (body.catch_up_to is not None and body.reached < body.catch_up_to):
        return ()
    return body.running + body.asked


def plan(row: StoredSchedule, schedule: Schedule, now: datetime, *, running: Sequence[str]) -> FiringPlan:
    """What to do with a due schedule. `running`: those of the jobs of `looks_at` that have not ended."""
    schedule = arrived(schedule, now)
    reached, count, wanted, behind = _due(schedule, now)
    fired = () if running else wanted
    jobs = tuple(slot_record(row.name, schedule.definition, schedule.rule, slot, now) for slot in fired)
    skipped, missed = len(wanted) - len(fired), count - len(wanted)
    body = schedule.body
    left = set(running if looks_at(schedule) else body.running + body.asked)
    catching_up = schedule.rule.catch_up is CatchUp.ALL and behind and bool(fired)
    after = schedule.with_state(
        reached=reached,
        fired=body.fired + len(fired),
        missed=body.missed + missed,
        skipped=body.skipped + skipped,
        last_at=fired[-1] if fired else body.last_at,
        last_id=jobs[-1].id if jobs else body.last_id,
        running=watched([id for id in body.running if id in left], [job.id for job in jobs]),
        asked=tuple(id for id in body.asked if id in left),
        catch_up_to=(body.catch_up_to or now) if catching_up else None,
    )
    to = stored(row.name, after)
    return FiringPlan(
        change=ScheduleChange(name=row.name, expect=row.revision, to=to, jobs=jobs),
        schedule=after,
        planned_at=now,
        next_at=to.next_at,
        fired=fired,
        missed=missed,
        skipped=skipped,
        behind=behind,
    )


class _Due(NamedTuple):
    """The slots of one step: up to where they go, how many they are, which should get a job, and whether newer ones
    are due as well."""

    reached: datetime
    slots: int
    wanted: tuple[datetime, ...]
    behind: bool


def _due(schedule: Schedule, now: datetime) -> _Due:
    catch_up, reached = schedule.rule.catch_up, schedule.body.reached
    if catch_up is CatchUp.ALL and schedule.body.decided_to is None:  # else a clock that was behind would make years
        most = min(MAX_STEP_SLOTS, max(1, MAX_STEP_BYTES // max(1, len(schedule.definition.payload))))
        slots, behind = due_of(schedule, now, most)
        return _Due(slots[-1] if slots else reached, len(slots), tuple(slots), behind)
    count, newest, behind = passed_of(schedule, now)
    if newest is None:
        return _Due(reached, 0, (), False)
    late = catch_up is CatchUp.NONE and now - newest > IN_TIME
    return _Due(newest, count, () if behind or late else (newest,), behind)


def slot_record(name: str, definition: Definition, rule: Rule, slot: datetime, now: datetime) -> JobRecord:
    """The job of a slot, made at `now`."""
    run_at = slot + jitter_of(name, slot, rule.jitter) if rule.jitter else slot
    return record(name, definition, slot, slot_id(name, slot), run_at, now)


def record(
    name: str, definition: Definition, slot: datetime, id: str, run_at: datetime | None, now: datetime
) -> JobRecord:
    """A job of a schedule that stands for a moment."""
    fields = ("type", "queue", "payload", "timeout", "priority", "max_attempts", "group", "group_limit")
    return JobRecord(
        **{name: getattr(definition, name) for name in fields},
        id=id,
        run_at=run_at,
        metadata={**definition.metadata, SCHEDULE_KEY: name, SLOT_KEY: slot.isoformat()},
        created_at=now,
    )
