"""Slots: the moments that a schedule stands for, as pure functions of its timing and a moment.

    every   start_at + k · every, k = 0, 1, 2 …: computed from the start, so they never drift
    cron    matching times on the clocks of a zone; cron_slots.py has the rules for missing and repeated hours

Slots are strictly increasing, in UTC, in whole milliseconds, from `start_at` on and before `end_at`. Every function
takes moments and reads no clock. The cost of a call does not depend on the time between two moments, except for
counting and listing, which have a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Any

import msgspec

from taskharbor.model.ids import derived_id
from taskharbor.model.job import EPOCH
from taskharbor.model.times import MILLISECOND, Duration, duration, moment, to_ms
from taskharbor.policy.cron import parse_cron
from taskharbor.policy.cron_slots import JUST_BEFORE, cron_slots
from taskharbor.policy.wall_clock import first_moment, zone_of

SHORTEST_EVERY = timedelta(seconds=1)


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a schedule is due: either `cron` or `every`. `new_timing` makes a checked one.

    `start_at` is the first moment that may be a slot, `end_at` the first one that may not.
    """

    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None


def new_timing(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str = "UTC",
    start_at: datetime | date | None = None,
    end_at: datetime | date | None = None,
) -> Timing:
    """A timing from what a user wrote; TypeError or ValueError for anything invalid.

    A date stands for its midnight in the zone. `end_at` is exclusive: from one 1 January to the next is one year.

    >>> new_timing(cron="30 2 * * *", tz="Europe/Zurich", end_at=date(2027, 1, 1)).end_at
    datetime.datetime(2026, 12, 31, 23, 0, tzinfo=datetime.timezone.utc)
    """
    if (cron is None) == (every is None):
        got = "neither" if cron is None else "both"
        raise ValueError(f"expected either cron= (an expression) or every= (seconds), got {got}")
    zone = zone_of(tz)
    timing = Timing(
        cron=None if cron is None else _written(cron),
        every=None if every is None else _interval(every),
        tz=tz,
        start_at=_limit(start_at, "start_at", zone),
        end_at=_limit(end_at, "end_at", zone),
    )
    start, end = timing.start_at, timing.end_at
    if start is not None and end is not None and start >= end:
        raise ValueError(f"start_at: expected a moment before end_at {end.isoformat()}, got {start.isoformat()}")
    if cron is not None and start is not None and next_slot(timing, start - MILLISECOND) is None:
        until = "the year 10000" if end is None else f"end_at {end.isoformat()}"
        raise ValueError(
            f"cron: expected an expression that matches between start_at {start.isoformat()} and {until}, got {cron!r}"
        )
    return timing


def _written(cron: str) -> str:
    """The expression as the user wrote it, with single blanks."""
    parse_cron(cron)
    return " ".join(cron.split())


def _interval(every: Duration) -> timedelta:
    span = duration(every, "every")
    if span < SHORTEST_EVERY:
        raise ValueError(f"every: expected at least 1 second, got {span.total_seconds()} seconds")
    if span % MILLISECOND:
        raise ValueError(f"every: expected whole milliseconds, got {span.total_seconds()} seconds; round it")
    return span


def _limit(value: Any, name: str, zone: tzinfo) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, date):  # a datetime is a date, too
        raise TypeError(f"{name}: expected a datetime or a date, got {type(value).__name__}")
    try:
        found = moment(value, name) if isinstance(value, datetime) else first_moment(_midnight(value), zone)
    except OverflowError:
        found = None
    if found is None or found < EPOCH:
        raise ValueError(f"{name}: expected a moment in the years 1970 to 9999, got {value.isoformat()}")
    return found


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time())


def anchored(timing: Timing, anchor: datetime) -> Timing:
    """The timing with a start, which an interval needs: `anchor`, unless the user chose one.

    The anchor belongs to the state of a schedule and is stored with it: a new one would begin a new sequence. `anchor`
    itself is the first slot of an interval, so the first one behind it is a whole interval later.
    """
    if timing.every is None or timing.start_at is not None:
        return timing
    return msgspec.structs.replace(timing, start_at=moment(anchor, "anchor"))


# From moment to slot


def next_slot(timing: Timing, after: datetime) -> datetime | None:
    """The first slot behind a moment; None: there is none any more.

    An invalid timing, from a damaged row or with a zone that this machine does not know, is a TypeError or ValueError.

    >>> nightly = new_timing(cron="30 2 * * *", tz="America/New_York")
    >>> next_slot(nightly, datetime(2026, 3, 8, 5, tzinfo=UTC)).isoformat()
    '2026-03-08T07:00:00+00:00'
    """
    return next(_slots(timing, after), None)


def slots_between(timing: Timing, after: datetime, until: datetime | None = None, *, limit: int) -> list[datetime]:
    """The first `limit` slots behind `after` and up to `until`, which is included.

    >>> ping = new_timing(every=15, start_at=datetime(2026, 1, 1, tzinfo=UTC))
    >>> [f"{slot:%X}" for slot in slots_between(ping, ping.start_at, limit=3)]
    ['00:00:15', '00:00:30', '00:00:45']
    """
    found = _slots(timing, after)
    return list(islice(found if until is None else takewhile(lambda slot: slot <= until, found), limit))


def last_slot(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The last slot behind `after` and up to `until`, without going through those before it; None: there is none.

    >>> hourly = new_timing(cron="@hourly")
    >>> last_slot(hourly, datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 7, 59, tzinfo=UTC)).isoformat()
    '2026-01-01T07:00:00+00:00'
    """
    found = next_slot(timing, after)
    if found is None or found > until:
        return None
    if timing.every is not None:
        last = until if timing.end_at is None else min(until, timing.end_at - MILLISECOND)
        return found + (last - found) // timing.every * timing.every
    high = until
    while (following := next_slot(timing, found)) is not None and following <= until:
        middle = found + (high - found) / 2
        later = next_slot(timing, middle)
        if later is not None and later <= until:
            found = later
        else:
            found, high = following, middle
    return found


def count_slots(timing: Timing, after: datetime, until: datetime, *, cap: int) -> int:
    """The number of slots behind `after` and up to `until`.

    It is exact for an interval. Slots of a cron expression are counted one by one, and no further than to `cap`: each
    takes some microseconds.

    >>> ping = new_timing(every=1, start_at=datetime(2026, 1, 1, tzinfo=UTC))
    >>> count_slots(ping, ping.start_at, datetime(2027, 1, 1, tzinfo=UTC), cap=10)
    31536000
    """
    if timing.every is None:
        return len(slots_between(timing, after, until, limit=cap))
    first, last = next_slot(timing, after), last_slot(timing, after, until)
    return 0 if first is None or last is None else (last - first) // timing.every + 1


def _slots(timing: Timing, after: datetime) -> Iterator[datetime]:
    if after.tzinfo is None:
        raise ValueError(f"expected a moment with a time zone, got the naive {after.isoformat()}; add tzinfo=UTC")
    start, end = timing.start_at, timing.end_at
    after = after.astimezone(UTC)
    if timing.every is not None:
        found = _by_interval(timing.every, start, after)
    elif timing.cron is not None:
        if start is not None and start > after:
            after = start - JUST_BEFORE
        found = cron_slots(parse_cron(timing.cron), zone_of(timing.tz), after)
    else:
        raise ValueError("expected a timing with cron or every, got neither; make it with new_timing()")
    return found if end is None else takewhile(lambda slot: slot < end, found)


def _by_interval(every: timedelta, start: datetime | None, after: datetime) -> Iterator[datetime]:
    if start is None:
        raise ValueError("expected an interval with a start, got none; make one with anchored(timing, moment)")
    if every < SHORTEST_EVERY:
        raise ValueError(f"every: expected at least 1 second, got {every.total_seconds()} seconds")
    return _multiples(every, start.astimezone(UTC), after)


def _multiples(every: timedelta, start: datetime, after: datetime) -> Iterator[datetime]:
    number = max(0, (after - start) // every + 1)
    try:
        while True:
            yield start + number * every
            number += 1
    except OverflowError:  # the year 10000
        return


# What follows from a slot


def slot_id(name: str, slot: datetime) -> str:
    """The id of a slot's job: of the slot's time, and the same in every process that computes it.

    >>> slot_id("nightly", datetime(2026, 1, 1, tzinfo=UTC))
    '01KDVDNA00...'
    """
    return derived_id(to_ms(slot), name)


def jitter_of(name: str, slot: datetime, jitter: timedelta) -> timedelta:
    """How much later the job of a slot becomes due: from zero to `jitter`, the same in every process.

    >>> jitter_of("nightly", datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=3)) <= timedelta(seconds=3)
    True
    """
    text = f"{name}\0{to_ms(slot)}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8, person=b"jitter").digest(), "big")
    return MILLISECOND * (number % (jitter // MILLISECOND + 1))
