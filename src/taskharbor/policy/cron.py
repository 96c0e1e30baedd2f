"""Cron expressions: five fields, or a nickname such as @daily, and the next wall time that matches.

Wall times are naive datetimes: what a clock on the wall shows. The moments that they stand for are the business of
wall_clock.py. cronsim parses the fields and knows which days match; the search is our own, because cronsim goes
through hours and minutes one by one and has rules of its own where a clock is changed.

An expression comes from users and may be hostile, so its length is bounded, it is kept as bits, and a search looks
at no more than the months of 50 years.
"""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cronsim import CronSim

MAX_CRON_CHARACTERS = 200
SEARCH_YEARS = 50
"""A matching day comes within 40 years (29 February on a given weekday), or never."""

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L (the last day) or LW (the last weekday)",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT (0 and 7 are Sunday), 5L (the last Friday) or 5#2 (the second Friday)",
}
_MINUTE = timedelta(minutes=1)
_FIRST_YEAR = datetime.combine(date(2000, 1, 1), time())
_ALL_HOURS = (1 << 24) - 1
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_KEPT_EXPRESSIONS = 1_024


class CronExpression:
    """A parsed expression. Hours, minutes and months are bits of a number; the days of a month are made when needed."""

    __slots__ = ("_cronsim", "_days", "_first", "_hours", "_minutes", "_months")

    def __init__(self, cronsim: CronSim) -> None:
        self._cronsim = cronsim
        self._minutes = sum(1 << each for each in cronsim.minutes)
        self._hours = sum(1 << each for each in cronsim.hours)
        self._months = sum(1 << each for each in cronsim.months)
        self._first = time(_lowest(self._hours, 0), _lowest(self._minutes, 0))
        self._days: dict[tuple[int, int], int] = {}

    @property
    def in_every_hour(self) -> bool:
        """Whether the hour field names all 24 hours."""
        return self._hours == _ALL_HOURS

    @property
    def in_words(self) -> str:
        """The expression as a sentence.

        >>> parse_cron("30 2 * * MON-FRI").in_words
        'At 02:30 on Monday through Friday'
        """
        return str(self._cronsim.explain())

    def next_after(self, wall: datetime) -> datetime | None:
        """The first matching wall time behind this one; None if there is none in 50 years or before the year 10000.

        >>> parse_cron("30 2 * * MON").next_after(datetime.fromisoformat("2026-11-16 02:30"))
        datetime.datetime(2026, 11, 23, 2, 30)
        """
        try:
            start = wall.replace(second=0, microsecond=0, fold=0) + _MINUTE
        except OverflowError:
            return None
        year, month, day = start.year, start.month, start.day
        if self._months >> month & 1 and self._days_of(year, month) >> day & 1:
            hour, minute = self._time_from(start.hour, start.minute)
            if hour >= 0:
                return start.replace(hour=hour, minute=minute)
        later = self._day_from(year, month, day + 1)
        return None if later is None else datetime.combine(later, self._first)

    def _time_from(self, hour: int, minute: int) -> tuple[int, int]:
        """The first matching time of a day from this one on; (-1, -1) if there is none."""
        if self._hours >> hour & 1 and (later := _lowest(self._minutes, minute)) >= 0:
            return hour, later
        hour = _lowest(self._hours, hour + 1)
        return (hour, self._first.minute) if hour >= 0 else (-1, -1)

    def _day_from(self, year: int, month: int, day: int) -> date | None:
        """The first matching day from this one on; `day` may be one more than its month has."""
        last = min(year + SEARCH_YEARS, MAXYEAR)
        while year <= last:
            if self._months >> month & 1 and (found := _lowest(self._days_of(year, month), day)) >= 0:
                return date(year, month, found)
            month, day = _lowest(self._months, month + 1), 1
            if month < 0:
                year, month = year + 1, _lowest(self._months, 1)
        return None

    def _days_of(self, year: int, month: int) -> int:
        """The matching days of a month as bits. They depend on its length and its first weekday alone."""
        length = 29 if month == 2 and _is_leap(year) else _LENGTHS[month]
        shape = (date(year, month, 1).weekday(), length)
        days = self._days.get(shape)
        if days is None:
            matches = self._cronsim.match_day
            days = sum(1 << day for day in range(1, length + 1) if matches(date(year, month, day)))
            self._days[shape] = days
        return days


def parse_cron(text: str) -> CronExpression:
    """The expression of a text; TypeError or ValueError for an invalid one, also for one that never matches."""
    if not isinstance(text, str):
        raise TypeError(f"cron: expected text such as '30 2 * * *', got {type(text).__name__}")
    if len(text) > MAX_CRON_CHARACTERS:
        raise ValueError(f"cron: expected at most {MAX_CRON_CHARACTERS} characters, got {len(text)}")
    return _parsed(" ".join(text.split()))


@lru_cache(maxsize=_KEPT_EXPRESSIONS)
def _parsed(text: str) -> CronExpression:
    from cronsim import CronSim, CronSimError  # here, so that a program without schedules does not load it

    fields = _fields(text)
    try:
        found = CronExpression(CronSim(" ".join(fields), _FIRST_YEAR))
    except CronSimError as error:
        wrong = str(error).removeprefix("Bad ")
        try:  # cronsim says the same of a day that is not a number and of one that its months do not have
            CronSim(" ".join((*fields[:3], "*", fields[4])), _FIRST_YEAR)
        except CronSimError:
            raise ValueError(_bad_field(text, fields, wrong)) from None
        if wrong == "month":
            raise ValueError(_bad_field(text, fields, wrong)) from None
        raise _never(text) from None
    if found.next_after(_FIRST_YEAR) is None:
        raise _never(text)
    return found


def _fields(text: str) -> list[str]:
    """The five fields, those of a nickname included."""
    if text.startswith("@"):
        known = NICKNAMES.get(text.lower())
        if known is None:
            hint = "; enqueue a job when your program starts instead" if text.lower() == "@reboot" else ""
            raise ValueError(f"cron: expected five fields or one of {', '.join(NICKNAMES)}, got {text!r}{hint}")
        text = known
    fields = text.split()
    if len(fields) != 5:
        hint = "; every= is for seconds" if len(fields) == 6 else ""
        raise ValueError(
            "cron: expected five fields (minute, hour, day of month, month, day of week) such as '30 2 * * *', "
            f"got {len(fields)} in {text!r}{hint}"
        )
    return fields


def _bad_field(text: str, fields: list[str], wrong: str) -> str:
    given = dict(zip(_FIELDS, fields, strict=True)).get(wrong, text)
    allowed = _FIELDS.get(wrong, "five fields")
    return (
        f"cron: expected {allowed} in the field {wrong}, as one of them, a list 1,2, a range 1-5 (the lower one "
        f"first), * or a step */2, got {given!r} in {text!r}"
    )


def _never(text: str) -> ValueError:
    return ValueError(
        f"cron: expected an expression that matches within {SEARCH_YEARS} years, got {text!r}, which never does; "
        "compare its day of month with its month and its day of week"
    )


def _lowest(bits: int, start: int) -> int:
    """The lowest bit that is set from this one on, or -1.

    >>> _lowest(0b10100, 3), _lowest(0b10100, 5)
    (4, -1)
    """
    rest = bits >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
