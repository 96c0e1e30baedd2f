"""Limits: what may be stored is decided before anything is, and a refusal never shows the user's data."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.drivers import InvalidJob, JobRecord, check_job, check_name, check_spawn, clean_error
from taskharbor.model import bounds
from taskharbor.model.bounds import MAX_ERROR_BYTES, check_moment, check_number

CANARY = "c4n4ry"


def job(**fields: Any) -> JobRecord:
    return JobRecord(**({"id": "j", "type": "t"} | fields))


def refused(**fields: Any) -> str:
    with pytest.raises(InvalidJob) as caught:
        check_job(job(**fields))
    return str(caught.value)


# Names


@pytest.mark.parametrize(
    "name",
    ["a", "a" * 255, "é" * 127, "🎉" * 63, "a b", "a:b/c.d-e_f", "%s", "'; DROP", "\u202e", "$(x)", "\\", "a\u00a0b"],
)
def test_names_may_be_any_text_of_255_bytes(name: str):
    for field in ("id", "type", "queue", "group", "flow_id"):
        check_job(job(**{field: name}))
    check_job(job(depends_on=(name,)))


@pytest.mark.parametrize("name", ["", "a" * 256, "é" * 128, "🎉" * 64])
def test_names_that_are_empty_or_too_long_are_refused_with_their_size(name: str):
    size = len(name.encode())
    mend = "shorten it" if name else "give it a name"
    for field in ("id", "type", "queue", "group", "flow_id"):
        assert refused(**{field: name}) == f"{field}: expected 1 to 255 bytes of text, got {size}; {mend}"


@given(st.integers(0, 0x9F).filter(lambda code: code < 0x20 or code >= 0x7F).map(chr) | st.sampled_from("{}"))
def test_control_characters_and_braces_are_refused_anywhere_in_a_name(bad: str):
    for name in (bad, f"{bad}a", f"a{bad}", f"a{bad}b"):
        with pytest.raises(InvalidJob, match="expected no control characters and no braces"):
            check_name(name, "queue")


@given(st.text(alphabet=st.characters(), max_size=300))
def test_a_name_is_checked_character_by_character(name: str):
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    fine = 1 <= size <= 255 and not re.search(r"[\x00-\x1f\x7f-\x9f{}]", name)
    try:
        check_name(name, "queue")
    except InvalidJob:
        assert not fine
    else:
        assert fine


@pytest.mark.parametrize("value", [None, 5, b"queue", ["a"]])
def test_a_name_that_is_not_text_is_refused_by_its_type(value: Any):
    assert refused(queue=value) == f"queue: expected text, got {type(value).__name__}"


def test_a_lone_surrogate_is_refused_everywhere():
    said = "expected text that UTF-8 can hold, got a lone surrogate"
    for field in ("id", "type", "queue", "group", "flow_id", "idempotency_key"):
        assert refused(**{field: "a\ud800"}) == f"{field}: {said}"
    assert refused(metadata={"a\udfff": "b"}) == f"metadata key: {said}"
    assert refused(metadata={"a": "b\udfff"}) == f"metadata value: {said}"
    assert refused(depends_on=("a\udfff",)) == f"depends_on: {said}"


# Numbers


@pytest.mark.parametrize("field", ["priority", "attempts", "max_attempts", "group_limit", "deliveries", "lost"])
def test_numbers_are_whole_and_fit_in_32_bits(field: str):
    lowest = -(2**31) if field == "priority" else 0
    for value in (lowest, 0, 2**31 - 1):
        check_job(job(**{field: value}))
    for value in (lowest - 1, 2**31, 2**63):
        assert refused(**{field: value}) == f"{field}: expected {lowest} to {2**31 - 1}, got {value}"
    for wrong in (True, 1.0, "1", None, float("nan")):
        assert refused(**{field: wrong}) == f"{field}: expected a whole number, got {type(wrong).__name__}"


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["10**5000", "-10**5000"])
def test_a_number_too_long_to_print_is_refused_like_any_other(value: int):
    with pytest.raises(InvalidJob, match=r"priority: expected .*, got one of 16610 bits"):
        check_number(value, "priority")


# Times


def zone(hours: int) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    "value",
    [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 20, tzinfo=zone(-4)),  # 1970 in UTC
        datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=zone(14)),
        datetime(9999, 12, 31, 11, 59, tzinfo=zone(-12)),
    ],
)
def test_moments_from_1970_to_9999_in_utc_are_accepted(value: datetime):
    check_moment(value, "run_at")


@pytest.mark.parametrize(
    ("value", "year"),
    [
        (datetime(1969, 12, 31, 23, tzinfo=UTC), 1969),
        (datetime(1970, 1, 1, 1, tzinfo=zone(14)), 1969),
        (datetime(9999, 12, 31, 23, tzinfo=zone(-12)), 10000),
    ],
)
def test_other_moments_are_refused_in_any_time_zone(value: datetime, year: int):
    with pytest.raises(InvalidJob, match=f"run_at: expected a year from 1970 to 9999 in UTC, got {year}"):
        check_moment(value, "run_at")


def test_a_moment_before_the_year_one_in_utc_is_refused():
    early = datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))
    with pytest.raises(InvalidJob, match="expected a year from 1970 to 9999 in UTC"):
        check_moment(early, "run_at")


def test_a_naive_moment_and_other_types_are_refused():
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the case
    for field in ("run_at", "created_at"):
        assert refused(**{field: naive}).startswith(f"{field}: expected a datetime with a time zone, got a naive one")
        assert refused(**{field: 5}) == f"{field}: expected a datetime, got int"
    assert refused(created_at=None) == "created_at: expected a datetime, got NoneType"


def test_a_timeout_is_positive_and_fits_in_32_bits_of_milliseconds():
    for fine in (timedelta(milliseconds=1), timedelta(milliseconds=2**31 - 1)):
        check_job(job(timeout=fine))
    for wrong in (timedelta(0), timedelta(microseconds=999), timedelta(seconds=-1), timedelta(milliseconds=2**31)):
        assert refused(timeout=wrong) == f"timeout: expected 1 ms to 24 days, got {wrong}; use None for no limit"
    assert refused(timeout=30) == "timeout: expected a timedelta, got int"


# The rest of a record


def test_a_payload_is_bytes_within_the_limit_and_never_shown():
    check_job(job(payload=b"x" * bounds.MAX_PAYLOAD_BYTES))
    said = refused(payload=CANARY.encode() * bounds.MAX_PAYLOAD_BYTES)
    assert said.startswith("payload of t: expected at most 1048576 bytes, got 6291456; ")
    assert CANARY not in said
    assert refused(payload=CANARY) == "payload: expected bytes, got str; encode it with a codec"
    with pytest.raises(InvalidJob, match="payload of t: expected at most 3 bytes, got 4"):
        check_job(job(payload=b"four"), max_payload=3)


def test_an_idempotency_key_is_any_text_and_never_shown():
    for fine in ("a", "\x00", "{}", "a" * 512, "é" * 256):
        check_job(job(idempotency_key=fine))
    assert refused(idempotency_key="") == "idempotency_key: expected 1 to 512 bytes of text, got 0; use None for no key"
    assert refused(idempotency_key="a" * 513).endswith("got 513; hash it if it must be longer")
    assert CANARY not in refused(idempotency_key=CANARY * 100)


def test_metadata_is_text_to_text_within_its_bounds_and_never_shown():
    check_job(job(metadata={"\x00{}": "\x00"}))
    check_job(job(metadata={str(number): "" for number in range(64)}))
    check_job(job(metadata={"k": "v" * (16 * 1024 - 1)}))
    assert refused(metadata={str(n): "" for n in range(65)}) == "metadata: expected at most 64 entries, got 65"
    assert refused(metadata={"k": "v" * 16 * 1024}).startswith(
        "metadata: expected at most 16384 bytes together, got 16385"
    )
    assert refused(metadata={CANARY: 5}) == "metadata value: expected text, got int"
    assert refused(metadata={5: CANARY}) == "metadata key: expected text, got int"
    for wrong in (None, [], [("a", "b")], ""):
        assert refused(metadata=wrong) == f"metadata: expected a dict of text to text, got {type(wrong).__name__}"


def test_dependencies_are_a_tuple_of_ids_within_the_limit():
    check_job(job(depends_on=("a",) * 20_000))
    assert refused(depends_on=("a",) * 20_001).startswith("depends_on: expected at most 20000 ids, got 20001")
    assert refused(depends_on=["a"]) == "depends_on: expected a tuple of ids, got list"
    assert refused(depends_on="abc") == "depends_on: expected a tuple of ids, got str"


def test_a_spawn_has_a_limit():
    check_spawn([job()] * 10_000)
    with pytest.raises(InvalidJob, match="spawn: expected at most 10000 jobs, got 10001"):
        check_spawn([job()] * 10_001)


def test_a_job_that_is_not_a_record_is_refused():
    with pytest.raises(InvalidJob, match="job: expected a JobRecord, got dict"):
        check_job({"id": "j"})  # type: ignore[arg-type]  # wrong on purpose


# Error text is never refused


@given(st.text(alphabet=st.characters(), max_size=20), st.integers(0, 2000))
def test_clean_error_makes_any_text_storable_and_leaves_storable_text_alone(text: str, times: int):
    dirty = text * times
    clean = clean_error(dirty)
    assert len(clean.encode()) <= MAX_ERROR_BYTES
    assert not re.search("[\x00\ud800-\udfff]", clean)
    expected = re.sub("[\x00\ud800-\udfff]", "\ufffd", dirty)
    assert expected.startswith(clean)
    if len(expected.encode()) <= MAX_ERROR_BYTES:
        assert clean == expected
    else:
        assert len(clean.encode()) > MAX_ERROR_BYTES - 4  # cut between characters, and no more than needed


def test_a_hundred_megabytes_of_error_are_cut_before_they_are_scanned():
    assert clean_error("\x00" * 100_000_000) == "\ufffd" * (MAX_ERROR_BYTES // 3)
