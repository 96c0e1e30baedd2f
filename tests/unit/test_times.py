"""Moments and durations: a millisecond is the resolution, `run_at` never moves down, mistakes are refused."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.model.job import EPOCH
from taskharbor.model.times import LONGEST, MILLISECOND, duration, from_ms, moment, round_up, seconds, to_ms, truncate

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001 - bounds only


@given(moments)
def test_milliseconds_and_back_is_the_moment_truncated(value: datetime):
    assert from_ms(to_ms(value)) == truncate(value)
    assert truncate(value) <= value < truncate(value) + MILLISECOND
    assert truncate(value).tzinfo is UTC


@given(moments)
def test_rounding_up_never_starts_early_and_never_a_whole_millisecond_late(value: datetime):
    up = round_up(value)
    assert timedelta(0) <= up - value < MILLISECOND
    assert up.microsecond % 1000 == 0
    assert round_up(up) == up
    assert moment(value, "run_at") == up


@given(st.integers(0, 253402300799999))
def test_every_millisecond_from_1970_to_9999_survives_the_way_there_and_back(milliseconds: int):
    assert to_ms(from_ms(milliseconds)) == milliseconds


def test_before_1970_is_rounded_down_too():
    assert to_ms(EPOCH - timedelta(microseconds=1)) == -1


@given(st.one_of(st.integers(0, 10**9), st.floats(0, 10**9), st.timedeltas(timedelta(0), LONGEST)))
def test_a_duration_is_seconds_or_a_timedelta(value: Any):
    span = duration(value, "delay")
    assert span == (value if isinstance(value, timedelta) else timedelta(seconds=value))
    assert seconds(value) == pytest.approx(span.total_seconds(), abs=1e-6)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "delay: expected zero or more seconds, got -1"),
        (-0.001, "delay: expected zero or more seconds, got -0.001"),
        (timedelta(days=-1), "delay: expected zero or more seconds, got -1 day, 0:00:00"),
        (float("nan"), "delay: expected at most 36525 days, got nan seconds"),
        (float("inf"), "delay: expected at most 36525 days, got inf seconds"),
        (float("-inf"), "delay: expected at most 36525 days, got -inf seconds"),
        (2**63, f"delay: expected at most 36525 days, got {2**63} seconds"),
        (10**400, "delay: expected at most 36525 days, got far more"),
        pytest.param(10**5000, "delay: expected at most 36525 days, got far more", id="10**5000"),
        (LONGEST + timedelta(seconds=1), "delay: expected at most 36525 days, got 36525 days, 0:00:01"),
        (timedelta.max, "delay: expected at most 36525 days, got 999999999 days, 23:59:59.999999"),
    ],
)
def test_a_duration_out_of_bounds_is_a_value_error(value: Any, said: str):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        duration(value, "delay")


@pytest.mark.parametrize("value", [True, False, "5", None, b"5", 5j, [5], datetime(2030, 1, 1, tzinfo=UTC)])
def test_a_duration_of_another_type_is_a_type_error_that_names_it(value: Any):
    said = f"delay: expected seconds or a timedelta, got {type(value).__name__}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        duration(value, "delay")


@pytest.mark.parametrize("value", [0, 0.0, timedelta(0), 1e-9])
def test_zero_is_refused_where_it_makes_no_sense(value: Any):
    assert duration(value, "timeout") == timedelta(0)
    with pytest.raises(ValueError, match="timeout: expected more than zero seconds"):
        duration(value, "timeout", zero=False)


class Nowhere(tzinfo):
    """A zone that does not know its offset: as good as none."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize("zone", [None, Nowhere()])
def test_a_naive_moment_is_refused_with_the_way_to_mend_it(zone: tzinfo | None):
    with pytest.raises(ValueError, match=re.escape("got the naive 2030-01-01T00:00:00; add tzinfo=UTC")):
        moment(datetime(2030, 1, 1, tzinfo=zone), "run_at")


@pytest.mark.parametrize("value", ["2030-01-01", 5, None])
def test_a_moment_of_another_type_is_a_type_error(value: Any):
    with pytest.raises(TypeError, match=f"run_at: expected a datetime, got {type(value).__name__}"):
        moment(value, "run_at")


@pytest.mark.parametrize(
    "value", [datetime.max.replace(tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))]
)
def test_a_moment_past_the_calendars_end_is_a_value_error(value: datetime):
    with pytest.raises(ValueError, match="run_at: expected a moment before the year 10000, got 9999-12-31"):
        moment(value, "run_at")
