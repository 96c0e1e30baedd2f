"""Schedules in a store: how one stands (`ScheduleInfo`), and changing it.

One change of one schedule that a person or a program asks for: read the row, decide, and store the next version.

The store takes it only if the row is still the one that was read; otherwise it is decided anew. So two people who
change a schedule at the same time both succeed, one after the other, and neither change is lost. A change whose reply
was lost is found in the row (`calls`), and is not made twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import ScheduleNotFound, WrongState
from taskharbor.model.job import JobRecord
from taskharbor.model.schedule import ScheduleChange, StoredSchedule
from taskharbor.schedules.body import Schedule, UnreadableBody, read_body
from taskharbor.schedules.changes import called, deleted
from taskharbor.schedules.plan import new_revision, stored, stored_until

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

LONGEST_PAUSE_S = 0.02  # before it is decided anew: several that change it at once should not stay in step
MAX_TRIES = 20
"""How often a change is decided anew because the schedule changed between the read and the write."""


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now. `cron`, `every` and the other options are those in force, with an edit if there is one.

    `next_at`: its next slot, or the oldest one that is due and that no worker has served yet; None: paused, or past its
    end. `last_at` and `last_id`: the newest slot that got a job, and that job. `declared`: in code; otherwise added at
    run time. `problem`: why this program cannot read it; the fields behind `next_at` then say nothing.
    """

    name: str  # its name
    queue: str  # the queue of its jobs
    type: str = ""  # the type of its job, or of the first job of its workflow
    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"  # its time zone
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_id: str | None = None
    deleted: bool = False  # by a person, although code declares it: it makes no jobs until a reset
    paused: bool = False  # whether it makes no jobs until it is resumed
    edited: bool = False  # whether a person has changed its options
    missed: int = 0  # slots that passed without a job, since it was added
    skipped: int = 0  # slots without a job because that of an earlier one had not ended
    fired: int = 0  # slots that got a job
    declared: bool = False
    start_at: datetime | None = None  # no slot before this moment
    end_at: datetime | None = None  # no slot from this moment on
    jitter: timedelta = timedelta(0)  # how much later than its slot a job may run
    catch_up: str = "latest"  # what becomes of slots that passed while no worker ran
    overlap: str = "skip"  # what becomes of a slot while the job of an earlier one has not ended
    problem: str = ""


def info_of(row: StoredSchedule, schedule: Schedule | None = None) -> ScheduleInfo:
    """A row as a user sees it."""
    if schedule is None:
        try:
            schedule = read_body(row.body)
        except UnreadableBody as error:
            return ScheduleInfo(name=row.name, queue=row.queue, next_at=row.next_at, problem=str(error))
    body, rule = schedule.body, schedule.rule
    return ScheduleInfo(
        name=row.name,
        queue=row.queue,
        type=schedule.definition.type,
        cron=rule.cron,
        every=rule.every,
        tz=rule.tz,
        next_at=row.next_at,
        last_at=body.last_at,
        last_id=body.last_id or None,
        deleted=body.deleted,
        paused=body.paused,
        edited=schedule.edited,
        missed=body.missed,
        skipped=body.skipped,
        fired=body.fired,
        declared=body.declared,
        start_at=rule.start_at,
        end_at=rule.end_at,
        jitter=rule.jitter,
        catch_up=rule.catch_up.value,
        overlap=rule.overlap.value,
    )


class Decided(NamedTuple):
    """The next version of a schedule, and jobs to store with it. `keeps_slots`: its next slot is the one it had."""

    schedule: Schedule
    jobs: tuple[JobRecord, ...] = ()
    keeps_slots: bool = False


class FoundSchedule(NamedTuple):
    """A schedule as it is stored. `schedule` None: this program cannot read it; `problem` says why."""

    row: StoredSchedule
    schedule: Schedule | None
    problem: str = ""


Decide = Callable[[Schedule | None, datetime], Decided | None]
"""From a version (None: there is none) and the present to the next version; None: nothing is to be changed."""


@dataclass(repr=False)
class ChangeCall:
    """One call that changes a schedule. `decide` may raise to refuse it; it may be called several times."""

    call: StoreCall
    name: str
    decide: Decide
    mark: str = field(default_factory=new_revision)

    @property
    def doubt(self) -> str:
        """What is unknown if no reply comes."""
        return f"The schedule may or may not have changed; harbor.schedules.get({self.name!r}) says it"

    async def send(self, driver: Driver) -> FoundSchedule:
        """Make the change, and return the schedule as it is then."""
        for _ in range(MAX_TRIES):
            found = await read_row(driver, self.name)
            schedule = None if found is None else readable(found)
            if found is not None and schedule is not None and self.mark in schedule.body.calls:
                return found  # by an earlier try, whose reply was lost
            now = self.call.now()
            decided = self.decide(schedule, now)
            if decided is None:
                assert found is not None
                return found
            after = called(decided.schedule, self.mark)
            if found is not None and decided.keeps_slots:
                to = stored_until(self.name, after, found.row.next_at)
            else:
                to = stored(self.name, after)
            expect = None if found is None else found.row.revision
            change = ScheduleChange(name=self.name, expect=expect, to=to, jobs=decided.jobs)
            (is_made,) = await driver.change_schedules([change], now)
            if is_made:
                return FoundSchedule(to, after)
            await self.call.access.sleep(LONGEST_PAUSE_S * random.random())
        raise _too_busy(self.name)


@dataclass(repr=False)
class DeleteCall:
    """One call that deletes a schedule, also one that this program cannot read. What code declares leaves a mark, and
    deleting the mark leaves nothing."""

    doubt = "The schedule may or may not be deleted; delete it again: that does no harm"
    call: StoreCall
    name: str
    sent: FoundSchedule | None = None  # what was to be deleted by a try of which no reply came

    async def send(self, driver: Driver) -> FoundSchedule:
        """Delete it, and return what it was."""
        for _ in range(MAX_TRIES):
            found = await read_row(driver, self.name)
            if self.sent is not None and (found is None or _of(found) != _of(self.sent)):
                return self.sent  # it was deleted, and perhaps added again since
            if found is None:
                raise not_found(self.name)
            self.sent = found
            mark = None if found.schedule is None else deleted(found.schedule)
            to = None if mark is None else stored(self.name, mark)
            change = ScheduleChange(name=self.name, expect=found.row.revision, to=to)
            (is_made,) = await driver.change_schedules([change], self.call.now())
            if is_made:
                return found
            await self.call.access.sleep(LONGEST_PAUSE_S * random.random())
        raise _too_busy(self.name)


async def read_row(driver: Driver, name: str) -> FoundSchedule | None:
    """A schedule by its name, as it is stored."""
    page = await driver.schedules(names=[name], limit=1)
    if not page.items:
        return None
    row: StoredSchedule = page.items[0]
    try:
        return FoundSchedule(row, read_body(row.body))
    except UnreadableBody as error:
        return FoundSchedule(row, None, str(error))


async def read_schedule(call: StoreCall, name: str) -> FoundSchedule:
    """A schedule by its name; ScheduleNotFound if there is none."""
    found = await call.ask(lambda driver: read_row(driver, name))
    if found is None:
        raise not_found(name)
    return found


def readable(found: FoundSchedule) -> Schedule:
    """The schedule itself; WrongState if this program cannot read it."""
    if found.schedule is None:
        raise WrongState(f"schedule {found.row.name!r}: {found.problem}")
    return found.schedule


def not_found(name: str) -> ScheduleNotFound:
    """The error for a name that no schedule has."""
    return ScheduleNotFound(
        f"no schedule {name!r}: one that is declared in code is stored when a worker of that code starts; "
        "`taskharbor schedule list` shows all"
    )


def _of(found: FoundSchedule) -> tuple[str, bool]:
    """What a deletion changes: which schedule it is, and whether it is there."""
    body = None if found.schedule is None else found.schedule.body
    return (found.row.revision, False) if body is None else (body.born, body.deleted)


def _too_busy(name: str) -> WrongState:
    return WrongState(f"schedule {name!r} changed {MAX_TRIES} times while this call tried to change it; call again")
