"""Each deliberate mistake in the slots is noticed: those of other schedulers, and slips of the pen.

The known slots and a short walk along intervals are run on a copy of the modules that has the mistake; the copy without
one passes. A text that is no longer there is an error of its own: say the mistake again in the new words.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taskharbor.policy import slots
from tests.architecture.mutants import imported_from
from tests.slots.known import check_known

SOURCE = Path(slots.__file__).parent
MODULES = ("cron", "cron_slots", "slots", "wall_clock")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Mutant(NamedTuple):
    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    # Of the field
    Mutant(
        "fold=1: the second pass instead of the first",
        "cron_slots",
        "moment_at(wall, before)",
        "moment_at(wall, behind)",
    ),
    Mutant(
        "autumn hour twice",
        "cron_slots",
        "if cron.in_every_hour else _every_wall_time",
        "if True else _every_wall_time",
    ),
    Mutant(
        "a star in the minutes means often, as in Debian",
        "cron_slots",
        "_every_moment if cron.in_every_hour else",
        "_every_moment if cron.in_every_hour or cron._minutes.bit_count() > 1 else",
    ),
    Mutant("spring hour never", "cron_slots", "if behind - before > LONGEST_GAP:", "if True:"),
    Mutant(
        "next interval from now", "slots", "number = max(0, (after - start) // every + 1)", "start, number = after, 1"
    ),
    Mutant("an hourly schedule loses the second pass", "cron_slots", "if cron.in_every_hour else", "if False else"),
    # Around changes of the clocks
    Mutant(
        "spring hour at the end of the gap by the old offset",
        "cron_slots",
        "yield change",
        "yield moment_at(wall, before)",
    ),
    Mutant(
        "the end of the gap is served twice",
        "cron_slots",
        "wall = cron.next_after(first)",
        "wall = cron.next_after(first - JUST_BEFORE)",
    ),
    Mutant(
        "each missing time has a slot", "cron_slots", "wall = cron.next_after(first)", "wall = cron.next_after(wall)"
    ),
    Mutant(
        "a lost day is made up for", "cron_slots", "LONGEST_GAP = timedelta(hours=3)", "LONGEST_GAP = timedelta(days=3)"
    ),
    Mutant("gaps of three hours are left out", "cron_slots", "before > LONGEST_GAP", "before >= LONGEST_GAP"),
    Mutant(
        "the first minute after a lost day is lost",
        "cron_slots",
        "next_after(first - JUST_BEFORE)",
        "next_after(first)",
    ),
    Mutant("a second pass is not noticed", "cron_slots", "if not local.fold:", "if True:"),
    Mutant(
        "a second pass hides what comes after it",
        "cron_slots",
        "wall_at(change, before) - JUST_BEFORE",
        "wall_at(after, before)",
    ),
    Mutant("an offset is kept over a change", "cron_slots", "if offset_at(near, zone) != offset:", "if False:"),
    Mutant(
        "a last hour that comes twice is left out",
        "cron_slots",
        "near = min(found, at + _NEAR)",
        "near = found if found - at <= _NEAR else at + timedelta(minutes=1)",
    ),
    Mutant("an offset is kept over a year", "cron_slots", "timedelta(hours=26)", "timedelta(days=9_999)"),
    Mutant(
        "the moment of a change is left out", "cron_slots", "wall_at(at, offset) - JUST_BEFORE", "wall_at(at, offset)"
    ),
    Mutant(
        "a change is found a second late",
        "wall_clock",
        "return start + changed * _SECOND",
        "return start + (changed + 1) * _SECOND",
    ),
    # Of expressions
    Mutant("not behind, but from the moment on", "cron", "fold=0) + _MINUTE", "fold=0)"),
    Mutant(
        "the minute starts anew in the same hour only",
        "cron",
        "return (hour, self._first.minute)",
        "return (hour, minute)",
    ),
    Mutant("no leap years", "cron", "return year % 4 == 0 and", "return False and"),
    Mutant("a leap year each century", "cron", "(year % 100 != 0 or year % 400 == 0)", "True"),
    Mutant("days of a month by its length alone", "cron", "date(year, month, 1).weekday(), length", "0, length"),
    # Of limits and counts
    Mutant("the end is a slot", "slots", "slot < end", "slot <= end"),
    Mutant("the start is not a slot", "slots", "after = start - JUST_BEFORE", "after = start"),
    Mutant("the interval begins behind its start", "slots", "max(0,", "max(1,"),
    Mutant("one slot too many is counted", "slots", "// timing.every + 1\n", "// timing.every + 2\n"),
    Mutant("the last slot may be behind", "slots", "if found is None or found > until:", "if found is None:"),
    Mutant("the last slot ignores the end", "slots", "min(until, timing.end_at - MILLISECOND)", "until"),
    Mutant("the last slot is the last but one", "slots", "and following <= until", "and following < until"),
)


@contextmanager
def copied(mutant: Mutant | None, folder: Path) -> Iterator[Any]:
    """The module `slots` of a copy with the mistake in it; None: as it is."""
    name = f"slots_copy_{abs(hash((mutant, str(folder))))}"
    target = folder / name
    target.mkdir()
    (target / "__init__.py").write_text("", encoding="utf-8")
    for module in MODULES:
        shutil.copy(SOURCE / f"{module}.py", target)
    if mutant is not None:
        file = target / f"{mutant.module}.py"
        text = file.read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"say it again in the words that stand there now: {mutant.old}"
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    for file in target.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for module in MODULES:
            text = text.replace(f"taskharbor.policy.{module} ", f"{name}.{module} ")
        file.write_text(text, encoding="utf-8")
    with imported_from(folder, name), imported_from(folder, f"{name}.slots") as found:
        yield found


def check_limits(slots: Any) -> None:
    """Starts, ends, counts and the last slot, of an interval and of an expression."""
    hour = timedelta(hours=1)
    end = START + 3 * hour
    for how in ({"every": 3600}, {"cron": "0 * * * *"}, {"cron": "0 0-22 * * *"}):
        timing = slots.new_timing(**how, start_at=START, end_at=end)
        expected = [START, START + hour, START + 2 * hour]
        assert slots.slots_between(timing, START - 9 * hour, limit=9) == expected
        assert slots.next_slot(timing, START + hour / 2) == START + hour
        asked = [(-1, 4), (-1, 2), (0, 2), (0, 1), (0, 0.5), (2, 9)]
        for after, until in [(START + early * hour, START + late * hour) for early, late in asked]:
            within = [slot for slot in expected if after < slot <= until]
            assert slots.count_slots(timing, after, until, cap=9) == len(within)
            assert slots.last_slot(timing, after, until) == (within[-1] if within else None)


def survives(found: Any) -> bool:
    try:
        check_known(found)
        check_limits(found)
    except Exception:
        return False
    return True


def test_the_copy_without_a_mistake_passes(tmp_path: Path):
    with copied(None, tmp_path) as found:
        assert found.next_slot is not slots.next_slot
        check_known(found)
        check_limits(found)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mistake_is_noticed(mutant: Mutant, tmp_path: Path):
    with copied(mutant, tmp_path) as found:
        assert not survives(found), f"survived: {mutant.name}"
