"""Figures: what happened in which minute of which queue, for 72 hours.

A hash holds an hour of a queue: `{th:fig}:at:<hour>:<queue>`, with fields `<minute of the hour>:<name>`. The sorted set
`{th:fig}:hours` names them in the order of hours. All of them are in one hash slot, and none bears the hash tag of its
queue: so figures neither make a queue known nor keep one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import FIGURES_KEPT_FOR
from taskharbor.drivers.redis.records import name_of, up_to_ms, whole
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.job import EPOCH, Figures
from taskharbor.model.times import from_ms

HOME = "th:fig"
HOUR = timedelta(hours=1)
MS_IN_HOUR = 3_600_000
LAST_MINUTE = 59  # of an hour
HOUR_DIGITS = 8  # of the hours since 1970, so that names are in the order of hours
MAX_ADDED = 500  # numbers in one script
MAX_HOURS = 200  # of one queue that are asked for by name: those that are kept, and some ahead of them

Hour = tuple[int, str, Sequence[bytes]]  # its number since 1970, the queue, and what its hash holds


def _hour(moment: datetime) -> int:
    return (moment - EPOCH) // HOUR


def _name(hour: int, queue: str) -> str:
    return f"{hour:0{HOUR_DIGITS}}:{queue}"


async def add_figures(store: RedisStore, rows: Sequence[Figures], now: datetime) -> None:
    """Add rows that were checked, and forget what is older than 72 hours."""
    oldest = now - FIGURES_KEPT_FOR
    numbers = [
        (_name(_hour(row.minute), row.queue), f"{row.minute.minute}:{name}", number)
        for row in rows
        if row.minute >= oldest
        for name, number in row.counts.items()
        if number
    ]
    for part in list(sliced(numbers, MAX_ADDED)) or [()]:
        args = ScriptCall(
            "add_figures",
            home=HOME,
            rows=[value for row in part for value in row],
            oldest_ms=max(0, up_to_ms(oldest)),
            oldest=_name(max(0, _hour(oldest)), ""),
        )
        await store.run(args, repeat=False)


async def figures(store: RedisStore, since: datetime, until: datetime, queue: str | None) -> list[Figures]:
    """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
    found: dict[tuple[datetime, str], dict[str, int]] = {}
    hours, oldest = (
        await _hours_of(store, since, until, queue) if queue is not None else await _hours(store, since, until)
    )
    since = max(since, from_ms(oldest))
    for hour, name, contents in hours:
        for field, number in zip(contents[::2], contents[1::2], strict=True):
            minute, _, figure = field.decode(errors="replace").partition(":")
            at = EPOCH + hour * HOUR + timedelta(minutes=min(max(0, whole(minute)), LAST_MINUTE))
            if since <= at < until and whole(number) > 0:
                found.setdefault((at, name), {})[figure] = whole(number)
    return [Figures(at, name, found[at, name]) for at, name in sorted(found)]


async def _hours(store: RedisStore, since: datetime, until: datetime) -> tuple[list[Hour], int]:
    """What is stored of these hours, and the moment in ms before which nothing counts."""
    first: Any = f"[{_name(_hour(since), '')}"
    last, hours = f"({_name(_hour(until) + 1, '')}", list[Hour]()
    while True:
        args = ScriptCall("read_figures", home=HOME, names=False, first=first, last=last)
        oldest, found, following = await store.run(args)
        hours += _read(found)
        if following is None:
            return hours, whole(oldest)
        first = binary(b"(" + following)


async def _hours_of(store: RedisStore, since: datetime, until: datetime, queue: str) -> tuple[list[Hour], int]:
    """The same for one queue, whose hours are asked for by their names."""
    oldest, _, _ = await store.run(ScriptCall("read_figures", home=HOME, names=()))
    first = max(_hour(since), whole(oldest) // MS_IN_HOUR)
    names = [_name(hour, queue) for hour in range(first, min(_hour(until) + 1, first + MAX_HOURS))]
    _, found, _ = await store.run(ScriptCall("read_figures", home=HOME, names=names))
    return list(_read(found)), whole(oldest)


def _read(found: Sequence[Any]) -> Iterator[Hour]:
    for name, contents in zip(found[::2], found[1::2], strict=True):
        text = name_of(name)
        if text is not None and text[:HOUR_DIGITS].isdigit():  # else another program wrote it
            yield int(text[:HOUR_DIGITS]), text[HOUR_DIGITS + 1 :], contents
