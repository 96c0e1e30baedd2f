"""Cron expressions: they match what they say, bad ones are refused with the way to mend them, none costs much."""

import re
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from taskharbor.policy import cron
from taskharbor.policy.cron import MAX_CRON_CHARACTERS, NICKNAMES, parse_cron
from tests.lanes import figure
from tests.slots.cron_expressions import Expression, expressions

walls = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - wall times have no zone
SHAPES_OF_MONTHS = 7 * 4  # its first weekday, its length


def parsed(text: str) -> Any:
    """The expression; None for one that is refused because it never matches."""
    try:
        return parse_cron(text)
    except ValueError as error:
        if "which never does" not in str(error):
            raise
        return None


@given(expressions(), walls)
@settings(max_examples=figure(test=100, full=2_000))
def test_the_next_match_is_the_one_that_cronsim_finds(expression: Expression, wall: datetime):
    found = parsed(expression.text)
    if found is None:
        with pytest.raises((StopIteration, CronSimError)):
            next(CronSim(expression.text, wall))
        return
    for expected in islice(CronSim(expression.text, wall), 3):
        wall = found.next_after(wall)
        assert wall == expected


@given(expressions(), walls)
@settings(max_examples=figure(test=100, full=2_000))
def test_the_next_match_matches_and_nothing_before_it_does(expression: Expression, wall: datetime):
    found = parsed(expression.text)
    assume(found is not None)
    expected = found.next_after(wall)
    assert expected > wall
    assert expression.matches(expected)
    between = wall.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(500):
        if between >= expected:
            break
        assert not expression.matches(between)
        between += timedelta(minutes=1)
    assert not expression.matches(expected - timedelta(minutes=1)) or expected - timedelta(minutes=1) <= wall


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        (" @Daily ", "0 0 * * *"),
    ],
)
def test_a_nickname_stands_for_its_fields(nickname: str, fields: str):
    wall = datetime.fromisoformat("2026-05-13 07:31:12.5")
    assert parse_cron(nickname).next_after(wall) == parse_cron(fields).next_after(wall) is not None


def test_the_nicknames_are_those_of_the_documents():
    assert set(NICKNAMES) == {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


FIVE = "expected five fields (minute, hour, day of month, month, day of week) such as '30 2 * * *'"
NEVER = "expected an expression that matches within 50 years"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"{FIVE}, got 0 in ''"),
        ("* * * *", f"{FIVE}, got 4 in '* * * *'"),
        ("*/10 * * * * *", f"{FIVE}, got 6 in '*/10 * * * * *'; every= is for seconds"),
        ("* * * * * * *", f"{FIVE}, got 7"),
        ("@reboot", "got '@reboot'; enqueue a job when your program starts instead"),
        ("@often", "expected five fields or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
        ("60 * * * *", "expected 0 to 59 in the field minute, as one of them, a list 1,2, a range 1-5 "),
        ("0 24 * * *", "expected 0 to 23 in the field hour"),
        ("0 22-2 * * *", "(the lower one first), * or a step */2, got '22-2' in '0 22-2 * * *'"),
        ("0 0 0 * *", "expected 1 to 31, L (the last day) or LW (the last weekday) in the field day-of-month"),
        ("0 0 * 13 *", "expected 1 to 12 or JAN to DEC in the field month, as"),
        ("0 0 * * 8", "expected 0 to 7 or SUN to SAT (0 and 7 are Sunday)"),
        ("0 0 ? * *", "in the field day-of-month, as one of them, a list 1,2, a range 1-5 (the lower one first)"),
        ("*/0 * * * *", "got '*/0'"),
        ("5- * * * *", "got '5-'"),
        ("1,,2 * * * *", "got '1,,2'"),
        ("٣ * * * *", "got '٣'"),
        ("0 0 30 2 *", f"{NEVER}, got '0 0 30 2 *', which never does; compare its day of month"),
        ("0 0 31 4,6,9,11 *", NEVER),
        ("* * */20 * 1L", NEVER),
        ("0 0 */31 * MON#5", NEVER),
        ("0 0 30 2 X", "in the field day-of-week"),
        ("0 0 30 X *", "in the field month"),
        ("*" * 201, "expected at most 200 characters, got 201"),
    ],
)
def test_a_bad_expression_is_refused_with_the_way_to_mend_it(text: str, said: str):
    with pytest.raises(ValueError, match=re.escape(said)) as raised:
        parse_cron(text)
    assert str(raised.value).startswith("cron: ")


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"] * 5])
def test_an_expression_of_another_type_is_a_type_error(value: Any):
    with pytest.raises(TypeError, match=f"cron: expected text such as .*, got {type(value).__name__}"):
        parse_cron(value)


def test_a_day_that_some_months_lack_is_not_refused():
    wall = datetime.fromisoformat("2026-01-31 00:00")
    assert parse_cron("0 0 31 * *").next_after(wall) == datetime.fromisoformat("2026-03-31 00:00")
    assert parse_cron("0 0 31 2 MON").next_after(wall) == datetime.fromisoformat("2026-02-02 00:00")  # 31 or Monday


@given(st.one_of(st.text(max_size=220), st.text("0123456789*/-,LW#@ JANMOSU", max_size=220)))
@settings(max_examples=figure(test=200, full=10_000))
def test_any_text_is_an_expression_or_a_value_error(text: str):
    refused = ""
    try:
        assert parse_cron(text).next_after(datetime.fromisoformat("2026-01-01")) is not None
    except ValueError as error:
        refused = str(error)
    assert refused[:6] in ("", "cron: ")
    assert len(refused) < 3 * MAX_CRON_CHARACTERS + 700


# What an expression can cost


@pytest.mark.parametrize(
    "text", ["0 0 * 2 MON#5", "0 0 L,LW,*/2 * 1L,2#3,*/3", "* * * * *", ",".join(["0-59"] * 38) + " * * * *"]
)
def test_an_expression_keeps_one_number_for_each_shape_of_a_month(text: str):
    found = parse_cron(text)
    wall = datetime.fromisoformat("2026-01-01")
    for _ in range(200):
        wall = (found.next_after(wall) or wall) + timedelta(days=27)
    assert len(found._days) <= SHAPES_OF_MONTHS
    assert max(found._minutes.bit_length(), *(days.bit_length() for days in found._days.values())) <= 60


def test_a_search_looks_at_the_months_of_fifty_years_at_most(monkeypatch: pytest.MonkeyPatch):
    found = parse_cron("0 0 31 1 *")
    looked: list[int] = []

    def no_days(self: object, year: int, month: int) -> int:
        looked.append(year)
        return 0

    monkeypatch.setattr(cron.CronExpression, "_days_of", no_days)
    assert found.next_after(datetime.fromisoformat("2026-06-01")) is None
    assert len(looked) == 50
    assert max(looked) == 2026 + 50


def test_the_parsed_expressions_that_are_kept_are_bounded():
    for number in range(cron._KEPT_EXPRESSIONS + 50):
        parse_cron(f"{number % 60} {number // 60 % 24} {number // 1440 + 1} * *")
    assert cron._parsed.cache_info().currsize <= cron._KEPT_EXPRESSIONS


@pytest.mark.parametrize("text", ["* * * * *", "0 0 1 1 *", "0 0 29 2 *", "59 23 31 12 *"])
def test_the_end_of_the_calendar_is_the_end_of_an_expression(text: str):
    found = parse_cron(text)
    assert found.next_after(datetime.fromisoformat("9999-12-31 23:59")) is None
    assert found.next_after(datetime.fromisoformat("9999-12-31 23:59:59.999999")) is None
