"""Slots of cron expressions against the oracle, which goes minute by minute: all zones, around changes of their clocks.

`make test` takes a few hundred random examples and every fortieth zone; `make full` thousands, and all zones.
"""

import itertools
import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskharbor.policy.slots import count_slots, last_slot, new_timing, next_slot, slots_between
from taskharbor.policy.wall_clock import change_between, offset_at, zone_of
from tests import lanes
from tests.slots import oracle
from tests.slots.cron_expressions import Expression, daily_expressions, expressions

AROUND = timedelta(hours=30)  # a country that changes the side of the date line moves by 24 hours
NEARBY = timedelta(hours=11)
PARTS = 4  # one test would take too long in `make full`
MILLISECOND = timedelta(milliseconds=1)


def near(zone: str) -> st.SearchStrategy[datetime]:
    """Changes of a zone's clocks; for a zone without any, a moment at random."""
    moments = st.datetimes(oracle.FROM.replace(tzinfo=None), oracle.TO.replace(tzinfo=None), timezones=st.just(UTC))
    whole = moments.map(lambda moment: moment.replace(second=0, microsecond=0))
    return st.sampled_from(oracle.changes(zone)) if oracle.changes(zone) else whole


places = st.sampled_from(oracle.ZONES).flatmap(lambda zone: st.tuples(st.just(zone), near(zone)))


def check(expression: Expression, zone: str, change: datetime, seed: int) -> None:
    moved = abs(offset_at(change, zone_of(zone)) - offset_at(change - oracle.MINUTE, zone_of(zone)))
    side = NEARBY if moved <= timedelta(hours=3) else AROUND
    start, end = change - side, change + side
    expected = oracle.slots(expression, zone, start, end)
    timing = new_timing(cron=expression.text, tz=zone)
    found = slots_between(timing, start - MILLISECOND, end, limit=len(expected) + 2)
    assert found == expected
    assert all(first < second for first, second in itertools.pairwise(found))
    assert {slot.tzinfo for slot in found} <= {UTC}
    dice = random.Random(seed)
    asked = [start + dice.random() * (end - start) for _ in range(20)]
    asked += [slot + MILLISECOND * dice.choice((-1, 0, 1)) for slot in dice.sample(expected, min(20, len(expected)))]
    asked += [change, change - MILLISECOND, change + MILLISECOND]
    for after in asked:
        behind = expected[bisect_right(expected, after) :]
        first = next_slot(timing, after)
        assert first == behind[0] if behind else first is None or first > end, after
    for after in dice.sample(asked, 3):
        behind = expected[bisect_right(expected, after) :]
        assert last_slot(timing, after, end) == (behind[-1] if behind else None), after
        assert count_slots(timing, after, end, cap=10_000) == len(behind), after


@given(daily_expressions(), places, st.integers(0, 2**32))
@settings(max_examples=lanes.figure(test=80, full=1_500))
def test_slots_are_those_of_the_oracle(expression: Expression, place: tuple[str, datetime], seed: int):
    check(expression, *place, seed)


def matching_then(expression: Expression, change: datetime, zone: str) -> bool:
    days = [change.astimezone(zone_of(zone)).date() + timedelta(days=number) for number in (-1, 0, 1)]
    return any(day.month in expression.months and expression.matches_day(day) for day in days)


@given(expressions(), places, st.integers(0, 2**32), st.data())
@settings(max_examples=lanes.figure(test=60, full=1_500))
def test_slots_on_rare_days_are_those_of_the_oracle(
    expression: Expression, place: tuple[str, datetime], seed: int, data: st.DataObject
):
    zone, change = place
    fitting = [each for each in oracle.changes(zone) if matching_then(expression, each, zone)]
    if fitting:
        change = data.draw(st.sampled_from(fitting))
    elif not matching_then(expression, change, zone):
        return
    check(expression, zone, change, seed)


EXAMPLES = (
    ("30 2 * * *", {30}, {2}),
    ("*/20 0-3 * * *", {0, 20, 40}, {0, 1, 2, 3}),
    ("*/15 * * * *", {0, 15, 30, 45}, set(range(24))),
    ("0 0 * * *", {0}, {0}),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_kind_of_change_of_every_zone(part: int):
    for zone in lanes.few(oracle.ZONES[part::PARTS], oracle.ZONES[part::PARTS][::40]):
        for number, change in enumerate(oracle.kinds_of_changes(zone)):
            for text, minutes, hours in lanes.few(EXAMPLES, EXAMPLES[number % 2 :: 2]):
                expression = Expression(
                    text, frozenset(minutes), frozenset(hours), frozenset(range(1, 13)), lambda day: True
                )
                check(expression, zone, change, seed=number)


@given(daily_expressions(), places)
@settings(max_examples=lanes.figure(test=30, full=1_000))
def test_each_wall_time_is_served_once(expression: Expression, place: tuple[str, datetime]):
    """The oracle itself: unless it names all hours, every matching wall time is in one slot, whatever the clocks do."""
    zone, change = place
    if len(expression.hours) == 24:
        return
    served = oracle.served(expression, zone, change - AROUND, change + AROUND)
    walls = [wall for _, several in served for wall in several]
    assert len(walls) == len(set(walls))
    clock = zone_of(zone)
    first, last = ((change + side).astimezone(clock) for side in (-AROUND, AROUND))
    jump = change.astimezone(clock).replace(tzinfo=None) - (change - MILLISECOND).astimezone(clock).replace(tzinfo=None)
    if jump <= timedelta(hours=3, minutes=1):
        minutes = (last.replace(tzinfo=None) - first.replace(tzinfo=None)) // oracle.MINUTE
        every = [first.replace(tzinfo=None, fold=0) + number * oracle.MINUTE for number in range(minutes + 1)]
        assert sorted(walls) == [wall for wall in every if expression.matches(wall)]


# What the code assumes of zones


@pytest.mark.parametrize("zone", ["Europe/Zurich", "Australia/Lord_Howe", "Pacific/Apia", "Antarctica/Casey"])
def test_a_change_of_the_clocks_is_found_to_the_second(zone: str):
    for change in oracle.changes(zone):
        assert change_between(change - timedelta(hours=17, seconds=1), change + AROUND, zone_of(zone)) == change
        assert change_between(change - timedelta(milliseconds=1), change, zone_of(zone)) == change


def test_changes_of_one_zone_lie_further_apart_than_the_code_assumes():
    for zone in lanes.few(oracle.ZONES, oracle.ZONES[::40]):
        assert all(later - early > 2 * timedelta(hours=26) for early, later in itertools.pairwise(oracle.changes(zone)))
