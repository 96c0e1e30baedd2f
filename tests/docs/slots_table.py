"""The table of docs/schedules.md, which shows the slots where clocks change: made by the code that decides on them.

`python -m tests.docs.slots_table` writes it between two comments of the page, and a test compares. After
changing the table or that code, run `make docs`, which writes it.
"""

from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from taskharbor.policy.slots import new_timing, slots_between
from taskharbor.policy.wall_clock import change_between, first_moment, offset_at, wall_at, zone_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedules.md"
BEGIN = "<!-- The table of slots: `make docs` writes it. -->"
END = "<!-- The end of the table of slots. -->"
SHOWN_HOURS = 4


class Night(NamedTuple):
    """A change of the clocks, and what to show of it: the slots of the first hours of some local days."""

    zone: str
    day: date
    expressions: tuple[str, ...]
    days: int = 1
    hours: int = SHOWN_HOURS


USUAL = ("30 2 * * *", "*/30 2 * * *", "30 1 * * *", "*/30 1 * * *", "0 3 * * *", "0 * * * *")
NIGHTS = (
    Night("America/New_York", date(2026, 3, 8), USUAL),
    Night("America/New_York", date(2026, 11, 1), USUAL),
    Night("Europe/Zurich", date(2026, 3, 29), ("30 2 * * *", "0 */3 * * *", "30 * * * *")),
    Night("Europe/Zurich", date(2026, 10, 25), ("30 2 * * *", "0 */3 * * *", "30 * * * *")),
    Night("Australia/Lord_Howe", date(2026, 10, 4), ("15 2 * * *", "15,45 2 * * *", "15 * * * *")),
    Night("Australia/Lord_Howe", date(2026, 4, 5), ("45 1 * * *", "*/30 1 * * *", "45 * * * *")),
    Night("America/Havana", date(2025, 3, 9), ("@daily", "@hourly")),
    Night("America/Havana", date(2025, 11, 2), ("@daily", "@hourly")),
    Night("Pacific/Apia", date(2011, 12, 30), ("0 12 * * *", "0 */12 * * *"), days=3, hours=24),
    Night("UTC", date(2026, 3, 8), ("30 2 * * *", "0 * * * *")),
)


def table() -> str:
    """The rows, as Markdown."""
    lines = ["| zone | clocks | expression | slots |", "| --- | --- | --- | --- |"]
    for night in NIGHTS:
        for number, expression in enumerate(night.expressions):
            place = (night.zone, clocks(night)) if number == 0 else ("", "")
            lines.append(f"| {place[0]} | {place[1]} | `{expression}` | {shown(night, expression)} |")
    return "\n".join(lines)


def clocks(night: Night) -> str:
    """From which time to which the clocks are put."""
    zone = zone_of(night.zone)
    early = first_moment(_midnight(night.day), zone) - timedelta(days=1)
    late = early + timedelta(days=3)
    before, after = offset_at(early, zone), offset_at(late, zone)
    if before == after:
        return f"{night.day}: not changed"
    change = change_between(early, late, zone)
    old, new = wall_at(change, before), wall_at(change, after)
    day = "" if new.date() == old.date() else f" on {new:%Y-%m-%d}"
    return f"{old:%Y-%m-%d}, {old:%H:%M} → {new:%H:%M}{day}"


def shown(night: Night, expression: str) -> str:
    """The slots of a night, as the clocks of the zone show them, with their offset."""
    zone = zone_of(night.zone)
    around = night.day - timedelta(days=night.days // 2)
    start = first_moment(_midnight(around), zone)
    end = first_moment(_midnight(around) + timedelta(days=night.days - 1, hours=night.hours), zone)
    timing = new_timing(cron=expression, tz=night.zone)
    found = slots_between(timing, start - timedelta(milliseconds=1), end - timedelta(milliseconds=1), limit=100)
    local = [slot.astimezone(zone) for slot in found]
    days = [
        (f"{day}: " if night.days > 1 else "") + ", ".join(f"{slot:%H:%M}{slot.isoformat()[-6:]}" for slot in several)
        for day, several in groupby(local, key=lambda slot: slot.date())
    ]
    return "; ".join(days)


def page(text: str) -> str:
    """The page with the table of today in place of the one that it has."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: expected a table between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time())


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
