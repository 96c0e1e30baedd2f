"""Moments and durations: one millisecond is the resolution everywhere.

Core truncates `now` and rounds `run_at` up, so a job never starts early and no store has to round.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from taskharbor.model.job import EPOCH

Duration: TypeAlias = float | timedelta
"""Seconds, or a timedelta."""

MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)
LONGEST = timedelta(days=36525)  # a century: longer is a mistake in units


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, rounded down.

    >>> to_ms(datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC))
    1000
    """
    return (moment - EPOCH) // MILLISECOND


def from_ms(milliseconds: int) -> datetime:
    """The moment `milliseconds` after 1970."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def to_us(moment: datetime) -> int:
    """Microseconds since 1970: exact for any datetime. The last moment is remembered, because a call's `now` recurs.

    >>> to_us(datetime(1970, 1, 1, 0, 0, 1, 999, tzinfo=UTC))
    1000999
    """
    global _last_us
    known, microseconds = _last_us
    if known is not moment:
        microseconds = (moment - EPOCH) // MICROSECOND
        _last_us = (moment, microseconds)
    return microseconds


_last_us: tuple[datetime, int] = (EPOCH, 0)


def from_us(microseconds: int) -> datetime:
    """The moment `microseconds` after 1970.

    >>> from_us(1_000_999).microsecond
    999
    """
    return EPOCH + timedelta(0, 0, microseconds)


def truncate(moment: datetime) -> datetime:
    """The moment in UTC, rounded down to a whole millisecond."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def round_up(moment: datetime) -> datetime:
    """The moment in UTC, rounded up to a whole millisecond."""
    floor = truncate(moment)
    return floor if floor == moment else floor + MILLISECOND


def duration(value: Duration, name: str, *, zero: bool = True) -> timedelta:
    """A user's duration as a timedelta; ValueError or TypeError for an invalid one.

    >>> duration(1.5, "delay")
    datetime.timedelta(seconds=1, microseconds=500000)
    """
    if isinstance(value, timedelta):
        span = timedelta.__add__(timedelta(0), value)  # a plain copy: a subclass may change later
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected seconds or a timedelta, got {type(value).__name__}")
    elif not -LONGEST.total_seconds() <= value <= LONGEST.total_seconds():  # false for NaN, too
        huge = isinstance(value, int) and value.bit_length() > 64  # with more digits than Python prints
        got = "far more" if huge else f"{value} seconds"
        raise ValueError(f"{name}: expected at most {LONGEST.days} days, got {got}")
    else:
        span = timedelta(seconds=value)
    if span > LONGEST:
        raise ValueError(f"{name}: expected at most {LONGEST.days} days, got {span}")
    if span < timedelta(0) or (not zero and not span):
        raise ValueError(f"{name}: expected {'zero or more' if zero else 'more than zero'} seconds, got {value}")
    return span


def seconds(value: Duration) -> float:
    """A checked duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def moment(value: datetime, name: str) -> datetime:
    """A user's moment, aware and rounded up to a millisecond; ValueError or TypeError for an invalid one."""
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: expected a datetime, got {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(
            f"{name}: expected a datetime with a time zone, got the naive {value.isoformat()}; add tzinfo=UTC"
        )
    try:
        return round_up(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a moment before the year 10000, got {value.isoformat()}") from None
