"""Random cron expressions, each with its own meaning: what the tests expect is not computed by the code under test.

A field is made as a pair, its text and the values that it names. The meaning of a day is written out here once more.
"""

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from hypothesis import strategies as st

Field = tuple[str, frozenset[int]]
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True)
class Expression:
    """The text of an expression, and what it means."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    matches_day: Callable[[date], bool]

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and self.matches_day(wall.date())
        )

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def numbers(low: int, high: int) -> st.SearchStrategy[Field]:
    """A field of numbers: *, a step, a number, a range, a range with a step, a list of these."""
    value = st.integers(low, high)
    everything = frozenset(range(low, high + 1))

    def steps(step: int) -> Field:
        return f"*/{step}", frozenset(range(low, high + 1, step))

    def from_to(ends: tuple[int, int], step: int) -> Field:
        first, last = sorted(ends)
        if first == last and step > 1:  # "5-5/2" is read as "5/2", which goes on to the end
            step = 1
        return f"{first}-{last}" + (f"/{step}" if step > 1 else ""), frozenset(range(first, last + 1, step))

    def joined(parts: list[Field]) -> Field:
        return ",".join(text for text, _ in parts), frozenset().union(*(values for _, values in parts))

    def onwards(first: int, step: int) -> Field:
        return f"{first}/{step}", frozenset(range(first, high + 1, step))

    one = st.one_of(
        value.map(lambda number: (str(number), frozenset({number}))),
        st.builds(from_to, st.tuples(value, value), st.integers(1, 4)),
        st.builds(onwards, value, st.integers(2, 9)),
    )
    return st.one_of(
        st.just(("*", everything)),
        st.integers(1, high).map(steps),
        one,
        st.lists(one, min_size=1, max_size=4).map(joined),
    )


def _last_day(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _last_weekday(day: date) -> int:
    return max(
        each for each in range(1, _last_day(day) + 1) if calendar.weekday(day.year, day.month, each) < calendar.SATURDAY
    )


def _sunday_is_0(day: date) -> int:
    return day.isoweekday() % 7


def days_of_month() -> st.SearchStrategy[tuple[str, Callable[[date], bool]]]:
    return st.one_of(
        numbers(1, 31).map(lambda field: (field[0], lambda day: day.day in field[1])),
        st.just(("L", lambda day: day.day == _last_day(day))),
        st.just(("LW", lambda day: day.day == _last_weekday(day))),
        st.integers(1, 31).map(lambda number: (f"{number},L", lambda day: day.day in (number, _last_day(day)))),
    )


def days_of_week() -> st.SearchStrategy[tuple[str, Callable[[date], bool]]]:
    def listed(field: Field) -> tuple[str, Callable[[date], bool]]:
        return field[0], lambda day: bool({day.isoweekday(), _sunday_is_0(day)} & field[1])

    def named(which: int) -> tuple[str, Callable[[date], bool]]:
        return WEEKDAYS[which], lambda day: _sunday_is_0(day) == which

    def last(which: int) -> tuple[str, Callable[[date], bool]]:
        return f"{which}L", lambda day: _sunday_is_0(day) == which % 7 and day.day + 7 > _last_day(day)

    def counted(which: int, number: int) -> tuple[str, Callable[[date], bool]]:
        return f"{which}#{number}", lambda day: _sunday_is_0(day) == which % 7 and (day.day - 1) // 7 + 1 == number

    one = st.integers(0, 7)
    return st.one_of(
        numbers(0, 7).map(listed),
        st.integers(0, 6).map(named),
        one.map(last),
        st.builds(counted, one, st.integers(1, 5)),
    )


def months() -> st.SearchStrategy[Field]:
    named = st.integers(1, 12).map(lambda month: (MONTHS[month - 1].lower(), frozenset({month})))
    return st.one_of(numbers(1, 12), named)


def _built(minute: Field, hour: Field, day: Any, month: Field, weekday: Any) -> Expression:
    # As Debian's cron: both day fields have to match if one of them begins with a star, else one of them.
    both = day[0].startswith("*") or weekday[0].startswith("*")
    return Expression(
        " ".join(field[0] for field in (minute, hour, day, month, weekday)),
        minute[1],
        hour[1],
        month[1],
        lambda date: all((day[1](date), weekday[1](date))) if both else any((day[1](date), weekday[1](date))),
    )


ANY_DAY = ("*", lambda day: True)
ANY_MONTH = ("*", frozenset(range(1, 13)))


def expressions() -> st.SearchStrategy[Expression]:
    """Any expression. One that never matches is among them."""
    return st.builds(_built, numbers(0, 59), numbers(0, 23), days_of_month(), months(), days_of_week())


def daily_expressions() -> st.SearchStrategy[Expression]:
    """Expressions that match on most days, so that something happens near a change of the clocks."""
    minutes = st.one_of(
        st.sampled_from([0, 1, 15, 30, 59]).map(lambda each: (str(each), frozenset({each}))), numbers(0, 59)
    )
    night = st.sets(st.integers(0, 4), min_size=1).map(lambda few: (",".join(map(str, few)), frozenset(few)))
    hours = st.one_of(st.just(("*", frozenset(range(24)))), numbers(0, 23), night)
    weekday = st.one_of(st.just(ANY_DAY), days_of_week())
    return st.builds(_built, minutes, hours, st.just(ANY_DAY), st.just(ANY_MONTH), weekday)
