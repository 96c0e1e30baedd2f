"""Storing what code declares: once for each start of a program's workers, and only what differs.

    no row: added      same hash: nothing, unless its next slot moved (other time zone data)
    another hash: the new definition, without the edit      a body of a later version: left alone, and reported

It is compared and set like every change. Of two programs that start at the same time with different code one comes
last, and that one stays. A row that is missing later, because the store was restored or emptied, any worker of the code
adds again; a person's deletion leaves a row with a mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.events import Observers, ScheduleChanged, ScheduleEditDropped, ScheduleRefused
from taskharbor.model.schedule import ScheduleChange, StoredSchedule
from taskharbor.schedules.body import NewerBody, Schedule, UnreadableBody, cannot_follow, read_body
from taskharbor.schedules.changes import Declaration, created, redeclared
from taskharbor.schedules.plan import next_of, stored

BATCH_DECLARATIONS = 100
MAX_TRIES = 10
"""How often a declaration is compared anew because its row changed meanwhile: a worker fired it, a person edited it."""


class DeclaredChange(msgspec.Struct, frozen=True):
    """A change that a declaration leads to, and what to report once it was made."""

    change: ScheduleChange
    queue: str
    created: bool = False
    differs: bool = True  # else only its next slot moved
    drops_edit: bool = False


class TooManyChanges(RuntimeError):
    """Rows changed again and again while their declarations were compared with them."""


async def declare(
    driver: Driver, declarations: Mapping[str, Declaration], clock: Clock, observers: Observers, worker: str = ""
) -> None:
    """Store declarations. May be repeated after a failure: what was stored is then as it should be."""
    names = sorted(declarations)
    for start in range(0, len(names), BATCH_DECLARATIONS):
        left: Sequence[str] = names[start : start + BATCH_DECLARATIONS]
        for _ in range(MAX_TRIES):
            left = await _declare_some(driver, [declarations[name] for name in left], clock, observers, worker)
            if not left:
                break
        else:
            raise TooManyChanges(f"the schedules {', '.join(left)} changed {MAX_TRIES} times meanwhile")


async def declare_missing(
    driver: Driver, missing: Sequence[Declaration], clock: Clock, observers: Observers, worker: str
) -> None:
    """Store declarations that have no row. One that got a row meanwhile stays as that is."""
    now = clock.now()
    for start in range(0, len(missing), BATCH_DECLARATIONS):
        some = missing[start : start + BATCH_DECLARATIONS]
        changes = [change for each in some if (change := declared_change(each, None, now)) is not None]
        await _make(driver, changes, now, observers, worker)


async def _declare_some(
    driver: Driver, some: Sequence[Declaration], clock: Clock, observers: Observers, worker: str
) -> list[str]:
    """Compare declarations with their rows, and store those that differ; return the names to compare again."""
    page = await driver.schedules(names=[each.name for each in some], limit=len(some))
    rows, now = {row.name: row for row in page.items}, clock.now()
    changes = list[DeclaredChange]()
    for each in some:
        try:
            change = declared_change(each, rows.get(each.name), now)
        except Exception as error:  # of a later version, or an edit that this machine cannot follow
            observers.emit(ScheduleRefused(worker, each.name, each.definition.queue, cannot_follow(error)))
            continue
        if change is not None:
            changes.append(change)
    return await _make(driver, changes, now, observers, worker)


async def _make(
    driver: Driver, changes: Sequence[DeclaredChange], now: datetime, observers: Observers, worker: str
) -> list[str]:
    """Make changes, and report them; return the names of those whose row was another one."""
    if not changes:
        return []
    answers = await driver.change_schedules([each.change for each in changes], now)
    for change, is_made in zip(changes, answers, strict=True):
        if is_made and change.differs:
            name = change.change.name
            observers.emit(ScheduleChanged(worker, name, change.queue, change.created))
            if change.drops_edit:
                observers.emit(ScheduleEditDropped(worker, name, change.queue))
    return [each.change.name for each, is_made in zip(changes, answers, strict=True) if not is_made]


def declared_change(given: Declaration, row: StoredSchedule | None, now: datetime) -> DeclaredChange | None:
    """What a declaration changes about a row; None: nothing. NewerBody for a row that a later version wrote."""
    if row is None:
        return _change(given, None, created(given, now, declared=True), created=True)
    try:
        schedule = read_body(row.body)
    except NewerBody:
        raise
    except UnreadableBody:  # damaged: the code says what it should be
        return _change(given, row, created(given, now, declared=True), created=True)
    if schedule.body.hash != given.hash or not schedule.body.declared:
        return _change(given, row, redeclared(schedule, given, now), drops_edit=schedule.edited)
    if row.next_at != next_of(schedule):
        return _change(given, row, schedule, differs=False)
    return None


def _change(
    given: Declaration,
    row: StoredSchedule | None,
    after: Schedule,
    *,
    created: bool = False,
    differs: bool = True,
    drops_edit: bool = False,
) -> DeclaredChange:
    expect = None if row is None else row.revision
    change = ScheduleChange(name=given.name, expect=expect, to=stored(given.name, after))
    return DeclaredChange(change, given.definition.queue, created, differs, drops_edit)
