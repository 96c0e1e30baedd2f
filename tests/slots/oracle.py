"""What the slots of a cron expression are, found minute by minute: slow, and so simple that it can be read.

It walks over real minutes in UTC, reads the clock of the zone at each, and notices by itself where that clock jumps.
It shares no code with policy/cron_slots.py.
"""

import functools
import zoneinfo
from datetime import UTC, datetime, timedelta

from tests.slots.cron_expressions import Expression

MINUTE = timedelta(minutes=1)
ZONES = sorted(zoneinfo.available_timezones() - {"localtime"})  # the last one is a link to a machine's own setting
FROM, TO = datetime(1972, 6, 1, tzinfo=UTC), datetime(2045, 1, 1, tzinfo=UTC)  # offsets are in whole minutes
STEP = timedelta(days=4)  # changes of a zone lie further apart


def slots(expression: Expression, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The slots from `start` to `end`. `start` must lie a day or more before the first change of the clocks."""
    return [moment for moment, _ in served(expression, zone, start, end)]


def served(expression: Expression, zone: str, start: datetime, end: datetime) -> list[tuple[datetime, list[datetime]]]:
    """The slots, each with the wall times that it serves."""
    clock = zoneinfo.ZoneInfo(zone)
    all_day = expression.hours == frozenset(range(24))
    shown: set[datetime] = set()
    found = []
    moment = start
    before = _wall(start - MINUTE, clock)
    while moment <= end:
        wall = _wall(moment, clock)
        due = [wall]
        if not all_day:
            skipped = wall - before - MINUTE
            if timedelta(0) < skipped <= timedelta(hours=3):
                due = [before + number * MINUTE for number in range(1, skipped // MINUTE + 1)] + due
            due = [each for each in due if each not in shown]
        shown.update(due)
        if serves := [each for each in due if expression.matches(each)]:
            found.append((moment, serves))
        before, moment = wall, moment + MINUTE
    return found


def _wall(moment: datetime, clock: zoneinfo.ZoneInfo) -> datetime:
    return moment.astimezone(clock).replace(tzinfo=None, fold=0)


@functools.cache
def changes(zone: str) -> list[datetime]:
    """When the clocks of a zone were changed, or will be."""
    clock = zoneinfo.ZoneInfo(zone)
    found, early = [], FROM
    while early < TO:
        late = early + STEP
        if early.astimezone(clock).utcoffset() != late.astimezone(clock).utcoffset():
            found.append(_first_minute(early, late, clock))
        early = late
    return found


def _first_minute(early: datetime, late: datetime, clock: zoneinfo.ZoneInfo) -> datetime:
    old = early.astimezone(clock).utcoffset()
    while late - early > MINUTE:
        middle = early + (late - early) // MINUTE // 2 * MINUTE
        if middle.astimezone(clock).utcoffset() == old:
            early = middle
        else:
            late = middle
    return late


def kinds_of_changes(zone: str) -> list[datetime]:
    """The newest change of each kind: by how much, and at which hour."""
    clock = zoneinfo.ZoneInfo(zone)
    newest = {}
    for change in changes(zone):
        first, then = (change - MINUTE).astimezone(clock), change.astimezone(clock)
        newest[(first.utcoffset(), then.utcoffset(), then.time())] = change
    return list(newest.values())
