"""Slots of a cron expression in a zone: from matching wall times to moments, also where the clocks are changed.

    all 24 hours in the   every moment at which clocks show a matching time: in both passes of an hour that comes
    hour field            twice, and not in an hour that is missing
    other hour fields     every matching wall time once. One that is missing is served at the first moment after the
                          gap, which several may share; one that comes twice, at its first pass

So a schedule for each hour keeps its pace, and a schedule for a time of the day runs once on each day. Gaps over
three hours are left out in both cases: a country has moved to the other side of the date line.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo

from taskharbor.policy.cron import CronExpression
from taskharbor.policy.wall_clock import change_between, end_of_gap, moment_at, offset_at, offsets_of, wall_at

LONGEST_GAP = timedelta(hours=3)
JUST_BEFORE = timedelta(microseconds=1)
_NEAR = timedelta(hours=26)  # clocks are changed by less; a zone changes its clocks once in such a time at most


def cron_slots(cron: CronExpression, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The slots behind a moment in UTC, in order."""
    walk = _every_moment if cron.in_every_hour else _every_wall_time
    try:
        yield from walk(cron, zone, after)
    except OverflowError:  # the year 10000
        return


def _every_moment(cron: CronExpression, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The moments at which clocks show a matching time: from one change of the clocks to the next."""
    at, offset = after, offset_at(after, zone)
    wall = cron.next_after(wall_at(at, offset))
    while wall is not None:
        found = moment_at(wall, offset)
        near = min(found, at + _NEAR)
        if offset_at(near, zone) != offset:
            at = change_between(at, near, zone)
            offset = offset_at(at, zone)
            wall = cron.next_after(wall_at(at, offset) - JUST_BEFORE)
        elif near == found:
            yield found
            at, wall = found, cron.next_after(wall)
        else:  # Clocks may change several times until then, but none shows a time again that is before `at`.
            at = max(near, found - _NEAR)
            offset = offset_at(at, zone)
            wall = cron.next_after(wall_at(at, offset))


def _every_wall_time(cron: CronExpression, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The moments at which matching wall times are served, each once."""
    wall = cron.next_after(_served_until(after, zone))
    while wall is not None:
        before, behind = offsets_of(wall, zone)
        if before >= behind:
            yield moment_at(wall, before)
            wall = cron.next_after(wall)
            continue
        change = end_of_gap(wall, zone)
        first = wall_at(change, behind)  # what clocks show at this moment
        if behind - before > LONGEST_GAP:
            wall = cron.next_after(first - JUST_BEFORE)
        else:
            yield change
            wall = cron.next_after(first)


def _served_until(after: datetime, zone: tzinfo) -> datetime:
    """The wall time up to which all have been served at a moment. In a second pass: all those of the first pass."""
    local = after.astimezone(zone)
    wall = local.replace(tzinfo=None)
    if not local.fold:
        return wall
    before, behind = offsets_of(wall, zone)
    change = change_between(after - (before - behind), after, zone)
    return wall_at(change, before) - JUST_BEFORE
