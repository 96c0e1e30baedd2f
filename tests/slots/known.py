"""Slots that are known by hand, around changes of the clocks: the expected moments are written out, not computed.

Dates are in the past, or in zones with old habits: countries decide late, and machines may know different rules.

`check_known` is what the tests run on the code, and on copies of it with a mistake.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple


class Known(NamedTuple):
    """The slots of a local day, or from there on: as a clock in the zone shows them, with its offset."""

    zone: str
    cron: str
    after: str
    until: str
    slots: tuple[str, ...]


def known(zone: str, cron: str, day: str, *slots: str) -> Known:
    """Slots of one local day; each is a time with its offset, such as 01:30-04:00."""
    return Known(zone, cron, day, "", tuple(f"{day}T{slot}" for slot in slots))


NEW_YORK, SPRING, AUTUMN = "America/New_York", "2026-03-08", "2026-11-01"  # 02:00 → 03:00, 02:00 → 01:00
HALF_HOURS_OF_A_SPRING_DAY = tuple(
    [f"{hour:02}:{minute}-05:00" for hour in range(2) for minute in ("00", "30")]
    + [f"{hour:02}:{minute}-04:00" for hour in range(3, 24) for minute in ("00", "30")]
)
HOURS_OF_AN_AUTUMN_DAY = ("00:00-04:00", "01:00-04:00", *(f"{hour:02}:00-05:00" for hour in range(1, 24)))

KNOWN = (
    # Spring: the hour from 02:00 to 03:00 is missing.
    known(NEW_YORK, "30 2 * * *", SPRING, "03:00-04:00"),
    known(NEW_YORK, "*/30 2 * * *", SPRING, "03:00-04:00"),
    known(NEW_YORK, "0,30 2,3 * * *", SPRING, "03:00-04:00", "03:30-04:00"),
    known(NEW_YORK, "0 3 * * *", SPRING, "03:00-04:00"),
    known(NEW_YORK, "30 1 * * *", SPRING, "01:30-05:00"),
    known(NEW_YORK, "59 1 * * *", SPRING, "01:59-05:00"),
    known(NEW_YORK, "30 2 8 3 *", SPRING, "03:00-04:00"),
    known(NEW_YORK, "*/30 * * * *", SPRING, *HALF_HOURS_OF_A_SPRING_DAY),
    known(NEW_YORK, "*/30 0-23 * * *", SPRING, *HALF_HOURS_OF_A_SPRING_DAY),
    known(NEW_YORK, "30 2 * * *", "2026-03-09", "02:30-04:00"),
    # Autumn: the hour from 01:00 to 02:00 comes twice.
    known(NEW_YORK, "30 1 * * *", AUTUMN, "01:30-04:00"),
    known(NEW_YORK, "*/30 1 * * *", AUTUMN, "01:00-04:00", "01:30-04:00"),
    known(NEW_YORK, "30 1,2 * * *", AUTUMN, "01:30-04:00", "02:30-05:00"),
    known(NEW_YORK, "0 2 * * *", AUTUMN, "02:00-05:00"),
    known(NEW_YORK, "0 * * * *", AUTUMN, *HOURS_OF_AN_AUTUMN_DAY),
    known(NEW_YORK, "@hourly", AUTUMN, *HOURS_OF_AN_AUTUMN_DAY),
    known(NEW_YORK, "45 * 1 11 *", AUTUMN, *(slot.replace(":00-", ":45-") for slot in HOURS_OF_AN_AUTUMN_DAY)),
    # From within the second pass: what the first pass served is not served again.
    Known(NEW_YORK, "5,30 1,2 * * *", "2026-11-01T01:10-05:00", "2026-11-02",
          ("2026-11-01T02:05-05:00", "2026-11-01T02:30-05:00")),
    Known(NEW_YORK, "30 * * * *", "2026-11-01T01:10-05:00", "2026-11-01T02:00-05:00", ("2026-11-01T01:30-05:00",)),
    # Europe: all zones at 01:00 UTC.
    known("Europe/Zurich", "30 2 * * *", "2026-03-29", "03:00+02:00"),
    known("Europe/Zurich", "30 2 * * *", "2026-10-25", "02:30+02:00"),
    known("Europe/Zurich", "0 */6 * * *", "2026-10-25", "00:00+02:00", "06:00+01:00", "12:00+01:00", "18:00+01:00"),
    known("Europe/London", "15 1 * * *", "2026-03-29", "02:00+01:00"),
    # Lord Howe: half an hour, 02:00 → 02:30 and 02:00 → 01:30.
    known("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", "02:30+11:00"),
    known("Australia/Lord_Howe", "15,45 2 * * *", "2026-10-04", "02:30+11:00", "02:45+11:00"),
    known("Australia/Lord_Howe", "*/20 1 * * *", "2026-04-05", "01:00+11:00", "01:20+11:00", "01:40+11:00"),
    known("Australia/Lord_Howe", "45 * 5 4 *", "2026-04-05", "00:45+11:00", "01:45+11:00", "01:45+10:30",
          *(f"{hour:02}:45+10:30" for hour in range(2, 24))),
    # Havana: midnight comes twice, and is missing.
    known("America/Havana", "0 0 * * *", "2025-11-02", "00:00-04:00"),
    known("America/Havana", "0 0 * * *", "2025-03-09", "01:00-04:00"),
    Known("America/Havana", "30 * 2 11 *", "2025-01-10", "2025-11-02T02:00-05:00",
          ("2025-11-02T00:30-04:00", "2025-11-02T00:30-05:00", "2025-11-02T01:30-05:00")),
    # São Paulo: the last hour of a day came twice, and belongs to the same day.
    known("America/Sao_Paulo", "30 * 16 2 *", "2019-02-16",
          *(f"{hour:02}:30-02:00" for hour in range(24)), "23:30-03:00"),
    known("America/Sao_Paulo", "30 23 16 2 *", "2019-02-16", "23:30-02:00"),
    # Troll: two hours. Casey: three hours, the longest gap that is served.
    known("Antarctica/Troll", "30 2 * * *", "2026-03-29", "03:00+02:00"),
    known("Antarctica/Casey", "30 3 * * *", "2009-10-18", "05:00+11:00"),
    # The date line: Apia had no 30 December 2011, Kwajalein no 21 August 1993.
    Known("Pacific/Apia", "0 12 * * *", "2011-12-29", "2012-01-01",
          ("2011-12-29T12:00-10:00", "2011-12-31T12:00+14:00")),
    Known("Pacific/Apia", "0 0 * * *", "2011-12-29", "2012-01-01",
          ("2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00")),
    Known("Pacific/Apia", "30 23,0 30,31 12 *", "2011-12-29", "2011-12-31T12:00+14:00", ("2011-12-31T00:30+14:00",)),
    Known("Kwajalein", "0 9 21 8 *", "1993-01-01", "1995-01-01", ("1994-08-21T09:00+12:00",)),
    # No changes.
    known("UTC", "30 2 * * *", SPRING, "02:30+00:00"),
    known("Asia/Kathmandu", "0 0 * * *", SPRING, "00:00+05:45"),
    # Rare days.
    Known("UTC", "0 0 * 2 MON#5", "2026-01-01", "2080-01-01", ("2044-02-29T00:00+00:00", "2072-02-29T00:00+00:00")),
    Known("UTC", "0 12 29 2 *", "2097-01-01", "2105-01-01", ("2104-02-29T12:00+00:00",)),
)  # fmt: skip


def check_known(slots: Any) -> None:
    """AssertionError if a module of slots, or a copy of it, gives others than the known ones."""
    from zoneinfo import ZoneInfo

    for each in KNOWN:
        zone = ZoneInfo(each.zone)
        after = _moment(each.after, zone) - timedelta(milliseconds=1)
        until = _moment(each.until, zone) if each.until else _moment(each.after, zone, days=1)
        timing = slots.new_timing(cron=each.cron, tz=each.zone)
        expected = [datetime.fromisoformat(slot) for slot in each.slots]
        wanted = len(expected) + 3
        _compare(each, slots.slots_between(timing, after, until - timedelta(milliseconds=1), limit=wanted), expected)
        _compare(each, _one_by_one(slots.next_slot, timing, after, until, wanted), expected)


def _one_by_one(next_slot: Callable[..., Any], timing: Any, after: datetime, until: datetime, limit: int) -> list[Any]:
    found: list[datetime] = []
    while (
        len(found) < limit and (slot := next_slot(timing, found[-1] if found else after)) is not None and slot < until
    ):
        found.append(slot)
    return found


def _compare(each: Known, found: list[datetime], expected: list[datetime]) -> None:
    assert found == expected, f"{each.zone}, {each.cron}, {each.after}: {[slot.isoformat() for slot in found]}"


def _moment(text: str, zone: Any, days: int = 0) -> datetime:
    found = datetime.fromisoformat(text) + timedelta(days=days)
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)  # so that it can be reckoned with
