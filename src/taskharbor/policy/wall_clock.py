"""Wall clocks: which moments of a zone show a given time, and when the zone changes its clocks.

A wall time is a naive datetime, a moment an aware one in UTC. Where clocks are put forward, wall times are missing;
where they are put back, they come twice.

No zone is assumed to change its clocks by more than a day, or twice within 52 hours. In the IANA database since 1840
the largest change is 24 hours, and the two nearest are 95 hours apart.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

MAX_ZONE_CHARACTERS = 255
_SECOND = timedelta(seconds=1)
_KEPT_ZONES = 256
_OF_THIS_MACHINE = ("localtime", "posixrules", "posix/", "right/")  # links to its own setting, and variants of files


def zone_of(name: str) -> tzinfo:
    """The zone of a name in the IANA database; TypeError or ValueError for an unknown one.

    >>> print(zone_of("Europe/Zurich"), zone_of("UTC"))
    Europe/Zurich UTC
    """
    if not isinstance(name, str):
        raise TypeError(f"tz: expected the name of a time zone such as 'Europe/Zurich', got {type(name).__name__}")
    return UTC if name == "UTC" else _zone(name[: MAX_ZONE_CHARACTERS + 1])


@lru_cache(maxsize=_KEPT_ZONES)
def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # here: it loads modules that a program without schedules does not need

    try:
        if len(name) <= MAX_ZONE_CHARACTERS and not name.startswith(_OF_THIS_MACHINE):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a path; a folder, or a file of another kind
        pass
    raise ValueError(_unknown(name))


def _unknown(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = [each for each in available_timezones() if not each.startswith(_OF_THIS_MACHINE)]
    expected = "tz: expected the name of a zone in the IANA database, such as 'Europe/Zurich'"
    if not known:
        return f"{expected}, got {name!r}; this machine has no time zone data: pip install tzdata"
    near = get_close_matches(name, known, n=1)
    shown = repr(name) if len(name) <= MAX_ZONE_CHARACTERS else f"a text of more than {MAX_ZONE_CHARACTERS} characters"
    return f"{expected}, got {shown}" + (f"; did you mean {near[0]!r}?" if near else "")


def offset_at(moment: datetime, zone: tzinfo) -> timedelta:
    """How far the clocks of a zone are ahead of UTC at a moment."""
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def wall_at(moment: datetime, offset: timedelta) -> datetime:
    """What clocks with this offset show at a moment in UTC."""
    return moment.replace(tzinfo=None) + offset


def moment_at(wall: datetime, offset: timedelta) -> datetime:
    """The moment at which clocks with this offset show a wall time."""
    return (wall - offset).replace(tzinfo=UTC)


def offsets_of(wall: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """The offsets by which a zone reads a wall time: before and after a change of the clocks, else twice the same.

    The first is larger for a time that comes twice, and smaller for one that is missing.
    """
    nothing = timedelta(0)
    return zone.utcoffset(wall.replace(fold=0)) or nothing, zone.utcoffset(wall.replace(fold=1)) or nothing


def change_between(early: datetime, late: datetime, zone: tzinfo) -> datetime:
    """The moment in (early, late] at which the zone changed to the offset it has at `late`.

    >>> spring = datetime(2026, 3, 29, tzinfo=UTC)
    >>> change_between(spring, spring + timedelta(days=1), zone_of("Europe/Zurich")).isoformat()
    '2026-03-29T01:00:00+00:00'
    """
    start = early.replace(microsecond=0)  # clocks change at whole seconds
    offset = offset_at(late, zone)
    before, changed = 0, (late - start) // _SECOND
    while changed - before > 1:
        middle = (before + changed) // 2
        if offset_at(start + middle * _SECOND, zone) == offset:
            changed = middle
        else:
            before = middle
    return start + changed * _SECOND


def end_of_gap(wall: datetime, zone: tzinfo) -> datetime:
    """The first moment after a change of the clocks that leaves out this wall time."""
    before, after = offsets_of(wall, zone)
    return change_between(moment_at(wall, after), moment_at(wall, before), zone)


def first_moment(wall: datetime, zone: tzinfo) -> datetime:
    """When clocks show this time for the first time; for a time that they leave out, the first moment after it.

    >>> new_york = zone_of("America/New_York")
    >>> first_moment(datetime.fromisoformat("2026-11-01 01:30"), new_york).isoformat()
    '2026-11-01T05:30:00+00:00'
    >>> first_moment(datetime.fromisoformat("2026-03-08 02:30"), new_york).isoformat()
    '2026-03-08T07:00:00+00:00'
    """
    before, after = offsets_of(wall, zone)
    return end_of_gap(wall, zone) if before < after else moment_at(wall, before)
