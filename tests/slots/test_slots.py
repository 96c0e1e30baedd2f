"""Slots: known ones by hand, intervals that never drift, limits, what is refused, and what follows from a slot."""

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.drivers import check_name
from taskharbor.model.ids import derived_id
from taskharbor.policy import cron, slots, wall_clock
from taskharbor.policy.slots import (
    Timing,
    anchored,
    count_slots,
    jitter_of,
    last_slot,
    new_timing,
    next_slot,
    slot_id,
    slots_between,
)
from tests.slots.known import check_known

START = datetime(2026, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
moments = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds only
spans = st.integers(1_000, 10**12).map(lambda number: MILLISECOND * number)


def test_the_known_slots():
    check_known(slots)


# Intervals


@given(moments, spans, moments)
def test_an_interval_gives_the_multiples_behind_a_moment(start: datetime, every: timedelta, after: datetime):
    timing = new_timing(every=every, start_at=start)
    found = next_slot(timing, after)
    anchor = timing.start_at
    assert anchor is not None
    assert found is not None
    assert found > after
    assert (found - anchor) % every == timedelta(0)
    assert found == anchor or found - every >= anchor
    assert found == anchor or found - every <= after


@given(moments, spans, st.lists(st.timedeltas(timedelta(0), timedelta(days=9000)), min_size=2, max_size=2))
def test_slots_of_an_interval_are_counted_and_the_last_found_without_going_through_them(
    start: datetime, every: timedelta, sides: list[timedelta]
):
    timing = new_timing(every=every, start_at=start)
    after, until = (start + side for side in sorted(sides))
    anchor = timing.start_at
    assert anchor is not None
    first, last = ((moment - anchor) // every for moment in (after, until))
    number = last - max(first, -1)
    assert count_slots(timing, after, until, cap=1) == number
    assert last_slot(timing, after, until) == (anchor + last * every if number else None)


def test_an_interval_that_is_asked_late_does_not_drift():
    timing = new_timing(every=10, start_at=START)
    late = next_slot(timing, START + timedelta(seconds=10))
    assert late == START + timedelta(seconds=20)
    assert next_slot(timing, START + timedelta(seconds=23.4)) == START + timedelta(seconds=30)


def test_an_interval_begins_with_its_start():
    timing = new_timing(every=60, start_at=START)
    assert next_slot(timing, START - timedelta(days=400)) == START
    assert next_slot(timing, START - MILLISECOND) == START
    assert next_slot(timing, START) == START + timedelta(seconds=60)


def test_an_interval_does_not_care_about_clocks():
    timing = new_timing(every=3600, tz="America/New_York", start_at=date(2026, 3, 8))
    found = slots_between(timing, START, limit=30)
    assert {later - early for early, later in pairwise(found)} == {timedelta(hours=1)}


def test_an_interval_needs_an_anchor_and_keeps_a_start_that_was_chosen():
    timing = new_timing(every=60)
    with pytest.raises(ValueError, match=r"got none; make one with anchored\(timing, moment\)"):
        next_slot(timing, START)
    first = anchored(timing, START + timedelta(microseconds=1))
    assert first.start_at == START + MILLISECOND
    assert anchored(first, START + timedelta(days=1)) == first
    nightly = new_timing(cron="@daily")
    assert anchored(nightly, START) == nightly


def test_a_year_of_seconds_is_counted_at_once():
    timing = new_timing(every=1, start_at=START)
    end = START + timedelta(days=365)
    assert count_slots(timing, START, end, cap=1_000) == 365 * 86_400
    assert last_slot(timing, START, end + timedelta(seconds=0.7)) == end
    assert len(slots_between(timing, START, end, limit=1_000)) == 1_000


# Cron expressions over long times


def test_slots_of_a_cron_expression_are_counted_to_the_cap():
    timing = new_timing(cron="* * * * *", tz="Europe/Zurich")
    year = START + timedelta(days=365)
    assert count_slots(timing, START, year, cap=1_000) == 1_000
    assert count_slots(timing, START, START + timedelta(hours=2), cap=1_000) == 120


def test_the_last_slot_of_a_cron_expression_is_found_by_halving(monkeypatch: pytest.MonkeyPatch):
    calls = Counter[str]()
    real = cron.CronExpression.next_after

    def counted(self: Any, wall: datetime) -> datetime | None:
        calls["next_after"] += 1
        return real(self, wall)

    monkeypatch.setattr(cron.CronExpression, "next_after", counted)
    timing = new_timing(cron="* * * * *", tz="Europe/Zurich")
    assert last_slot(timing, START, START + timedelta(days=3650, seconds=59)) == START + timedelta(days=3650)
    assert calls["next_after"] < 150


def test_there_is_no_last_slot_where_there_is_none():
    timing = new_timing(cron="0 0 1 1 *")
    assert last_slot(timing, START, START + timedelta(days=300)) is None
    assert last_slot(timing, START - MILLISECOND, START) == START
    assert count_slots(timing, START, START + timedelta(days=300), cap=5) == 0
    assert slots_between(timing, START, START + timedelta(days=300), limit=5) == []


# Start and end


@pytest.mark.parametrize("how", [{"cron": "@hourly"}, {"every": 3600}])
def test_the_start_is_included_and_the_end_is_not(how: dict[str, Any]):
    end = START + timedelta(hours=3)
    timing = new_timing(**how, start_at=START, end_at=end)
    expected = [START + timedelta(hours=number) for number in range(3)]
    before = START - timedelta(days=9)
    assert slots_between(timing, before, limit=9) == expected
    assert count_slots(timing, before, end + timedelta(days=9), cap=9) == 3
    assert last_slot(timing, before, end + timedelta(days=9)) == expected[-1]
    assert next_slot(timing, expected[-1]) is None
    assert next_slot(timing, end) is None


def test_a_date_is_its_midnight_in_the_zone():
    timing = new_timing(cron="@daily", tz="Europe/Zurich", start_at=date(2026, 7, 1), end_at=date(2026, 7, 4))
    assert (timing.start_at, timing.end_at) == (
        datetime(2026, 6, 30, 22, tzinfo=UTC),
        datetime(2026, 7, 3, 22, tzinfo=UTC),
    )
    assert len(slots_between(timing, START, limit=9)) == 3


@pytest.mark.parametrize(
    ("zone", "day", "moment"),
    [
        ("America/Havana", date(2025, 11, 2), "2025-11-02T00:00-04:00"),  # midnight comes twice
        ("America/Havana", date(2025, 3, 9), "2025-03-09T01:00-04:00"),  # midnight is missing
        ("Pacific/Apia", date(2011, 12, 30), "2011-12-31T00:00+14:00"),  # the whole day is missing
    ],
)
def test_a_date_begins_when_it_begins_for_the_first_time(zone: str, day: date, moment: str):
    assert new_timing(every=60, tz=zone, start_at=day).start_at == datetime.fromisoformat(moment)


def test_moments_are_kept_in_utc_and_whole_milliseconds():
    timing = new_timing(every=60, start_at=datetime(2026, 1, 1, 1, 0, 0, 1, tzinfo=timezone(timedelta(hours=1))))
    assert timing.start_at == START + MILLISECOND
    assert timing.start_at.tzinfo is UTC
    found = next_slot(timing, datetime(2026, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")))
    assert found == START + MILLISECOND
    assert found.tzinfo is UTC


def test_slots_end_with_the_calendar():
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert next_slot(new_timing(every=60, start_at=START), last) is None
    for text in ("* * * * *", "0 12 * * *"):
        for zone in ("UTC", "Europe/Zurich", "Pacific/Honolulu"):
            assert next_slot(new_timing(cron=text, tz=zone), last) is None


# What is refused


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "expected either cron= (an expression) or every= (seconds), got neither"),
        ({"cron": "@daily", "every": 5}, "expected either cron= (an expression) or every= (seconds), got both"),
        ({"cron": "*/5 * * * * *"}, "every= is for seconds"),
        ({"every": 0.999}, "every: expected at least 1 second, got 0.999 seconds"),
        ({"every": 0}, "every: expected at least 1 second, got 0.0 seconds"),
        ({"every": -5}, "every: expected zero or more seconds, got -5"),
        ({"every": 1.0001}, "every: expected whole milliseconds, got 1.0001 seconds; round it"),
        ({"every": float("nan")}, "every: expected at most 36525 days, got nan seconds"),
        ({"every": 5, "tz": "Europe/Zürich"}, "got 'Europe/Zürich'; did you mean 'Europe/Zurich'?"),
        ({"every": 5, "tz": "europe/zurich "}, "tz: expected the name of a zone in the IANA database"),
        ({"every": 5, "tz": ""}, "such as 'Europe/Zurich', got ''"),
        ({"every": 5, "tz": "America"}, "got 'America'"),
        ({"every": 5, "tz": "../../etc/passwd"}, "got '../../etc/passwd'"),
        ({"every": 5, "tz": "/etc/localtime"}, "got '/etc/localtime'"),
        ({"every": 5, "tz": "localtime"}, "got 'localtime'"),
        ({"every": 5, "tz": "zone.tab"}, "got 'zone.tab'"),
        ({"every": 5, "tz": "a\0b"}, r"got 'a\x00b'"),
        ({"every": 5, "tz": "\ud800"}, r"got '\ud800'"),
        ({"every": 5, "tz": "Z" * 10**6}, "got a text of more than 255 characters"),
        ({"every": 5, "start_at": datetime(2026, 1, 1)}, "start_at: expected a datetime with a time zone"),  # noqa: DTZ001 - refused
        ({"every": 5, "end_at": datetime(2026, 1, 1)}, "got the naive 2026-01-01T00:00:00; add tzinfo=UTC"),  # noqa: DTZ001 - refused
        ({"every": 5, "start_at": START, "end_at": START}, "start_at: expected a moment before end_at 2026-01-01T00"),
        ({"every": 5, "start_at": date(1969, 12, 31)}, "start_at: expected a moment in the years 1970 to 9999"),
        ({"every": 5, "start_at": date.min, "tz": "Asia/Tokyo"}, "in the years 1970 to 9999, got 0001-01-01"),
        ({"every": 5, "end_at": date.min}, "end_at: expected a moment in the years 1970 to 9999, got 0001-01-01"),
        ({"every": 5, "start_at": datetime.min.replace(tzinfo=UTC)}, "in the years 1970 to 9999, got 0001-01-01T00"),
        ({"every": 5, "end_at": datetime.max.replace(tzinfo=UTC)}, "end_at: expected a moment before the year 10000"),
        (
            {"cron": "0 0 1 6 *", "start_at": date(2026, 1, 1), "end_at": date(2026, 6, 1)},
            "cron: expected an expression that matches between start_at 2026-01-01T00:00:00+00:00 and end_at 2026",
        ),
        (
            {"cron": "0 0 1 6 *", "start_at": date(9999, 7, 1)},
            "and the year 10000, got '0 0 1 6 *'",
        ),
    ],
)  # fmt: skip
def test_a_bad_timing_is_a_value_error_that_says_how_to_mend_it(how: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        new_timing(**how)
    assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"cron": 5}, "cron: expected text such as '30 2 * * *', got int"),
        ({"every": "5"}, "every: expected seconds or a timedelta, got str"),
        ({"every": True}, "every: expected seconds or a timedelta, got bool"),
        ({"every": 5, "tz": ZoneInfo("Europe/Zurich")}, "tz: expected the name of a time zone"),
        ({"every": 5, "tz": None}, "such as 'Europe/Zurich', got NoneType"),
        ({"every": 5, "start_at": "2026-01-01"}, "start_at: expected a datetime or a date, got str"),
        ({"every": 5, "end_at": 5}, "end_at: expected a datetime or a date, got int"),
    ],
)
def test_a_timing_of_other_types_is_a_type_error(how: dict[str, Any], said: str):
    with pytest.raises(TypeError, match=re.escape(said)):
        new_timing(**how)


def test_a_naive_moment_is_refused():
    with pytest.raises(ValueError, match="expected a moment with a time zone, got the naive 2026-01-01T00:00:00"):
        next_slot(new_timing(cron="@daily"), datetime(2026, 1, 1))  # noqa: DTZ001 - refused


@pytest.mark.parametrize(
    "damaged",
    [
        Timing(),
        Timing(every=timedelta(0), start_at=START),
        Timing(every=timedelta(days=-1), start_at=START),
        Timing(cron="* * * *"),
        Timing(cron="* " * 10**6),
        Timing(cron="@daily", tz="Mars/Olympus_Mons"),
    ],
)
def test_a_damaged_timing_is_a_value_error(damaged: Timing):
    with pytest.raises(ValueError, match="expected"):
        next_slot(damaged, START)


def test_a_machine_without_time_zones_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def unknown(name: str) -> Any:
        raise KeyError(name)

    monkeypatch.setattr("zoneinfo.ZoneInfo", unknown)
    monkeypatch.setattr("zoneinfo.available_timezones", set)
    wall_clock._zone.cache_clear()
    with pytest.raises(ValueError, match="this machine has no time zone data: pip install tzdata"):
        new_timing(every=5, tz="Europe/Zurich")
    assert new_timing(cron="@daily", tz="UTC").tz == "UTC"


# How it is stored


@given(
    st.one_of(
        st.builds(Timing, every=spans, start_at=moments.map(lambda moment: moment.replace(microsecond=0))),
        st.builds(Timing, cron=st.sampled_from(["@daily", "30 2 * * *"]), tz=st.sampled_from(["UTC", "Asia/Tokyo"])),
    )
)
def test_a_timing_travels_as_json_and_as_messagepack(timing: Timing):
    assert msgspec.json.decode(msgspec.json.encode(timing), type=Timing) == timing
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(timing), type=Timing) == timing


def test_an_expression_is_kept_as_it_was_written():
    assert new_timing(cron="  30   2 * *\tmon ").cron == "30 2 * * mon"
    assert new_timing(cron="@daily").cron == "@daily"


# What follows from a slot


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    moments,
    st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_jitter_is_from_zero_to_its_bound_and_the_same_for_all(name: str, slot: datetime, jitter: timedelta):
    found = jitter_of(name, slot, jitter)
    assert timedelta(0) <= found <= jitter
    assert found % MILLISECOND == timedelta(0)
    assert found == jitter_of(name, slot.astimezone(ZoneInfo("Asia/Tokyo")), jitter)


def test_jitter_spreads_over_names_and_over_slots():
    second = timedelta(seconds=1)
    by_name = Counter(jitter_of(f"s{number}", START, 3 * second) // second for number in range(3_000))
    by_slot = Counter(jitter_of("s", START + number * second, 3 * second) // second for number in range(3_000))
    for spread in (by_name, by_slot):
        assert all(900 < spread[each] < 1_100 for each in range(3))


def test_an_id_is_that_of_the_name_and_the_slot():
    slot = START
    assert slot_id("nightly", slot) == slot_id("nightly", slot.astimezone(ZoneInfo("Asia/Tokyo")))
    made = {slot_id(name, slot + number * MILLISECOND) for name in ("a", "b", "a\0", "") for number in range(100)}
    assert len(made) == 400
    assert slot_id("z", slot) < slot_id("a", slot + MILLISECOND)
    check_name(slot_id("nightly", slot), "id")


def test_ids_and_jitter_stay_as_they_are():
    """Workers of two versions of the library must make the same ones."""
    assert slot_id("nightly-eu", START) == "01KDVDNA002RF56N2MTA9NE51C"
    assert jitter_of("nightly-eu", START, timedelta(minutes=1)) == timedelta(seconds=4.621)


@pytest.mark.parametrize("milliseconds", [-1, 1 << 48])
def test_a_moment_that_no_id_holds_is_refused(milliseconds: int):
    with pytest.raises(ValueError, match=f"that fit into an id, got {milliseconds}"):
        derived_id(milliseconds, "nightly")
