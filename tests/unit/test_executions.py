"""The trail of a job and its progress: written within their bounds, read whatever is in them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor.model.bounds import MAX_NOTE_BYTES, MAX_TRAIL_BYTES
from taskharbor.model.executions import (
    FIRST_KEPT,
    LAST_KEPT,
    MAX_TRAIL_ERROR_BYTES,
    Attempt,
    AttemptKind,
    known_executions,
    read_trail,
    write_trail,
)
from taskharbor.model.job import JobInfo, JobRecord, State, replace
from taskharbor.model.progress import Progress, read_note, write_note

pytestmark = pytest.mark.lane("unit")

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def attempt(number: int, kind: AttemptKind = AttemptKind.FAILED, **fields: object) -> Attempt:
    return Attempt(number=number, kind=kind, **fields)  # type: ignore[arg-type]  # fields of Attempt


def info(state: State, *, deliveries: int, trail: bytes = b"", **fields: object) -> JobInfo:
    job = JobRecord(id="j", type="t", deliveries=deliveries, trail=trail, ran_on="w", began_at=NOW)
    return JobInfo(replace(job, **fields), state)


def numbers(attempts: list[Attempt]) -> list[int]:
    return [one.number for one in attempts]


def test_a_trail_is_read_as_it_was_written():
    whole = attempt(
        7,
        worker="w-1",
        began_at=NOW,
        ended_at=NOW + timedelta(milliseconds=1500),
        error_class="app.Declined",
        error="Declined: no",
        fingerprint="ab" * 8,
    )
    assert read_trail(write_trail([whole, attempt(8, AttemptKind.SNOOZED)])) == [whole, attempt(8, AttemptKind.SNOOZED)]


def test_a_long_trail_keeps_the_first_and_the_last():
    kept = numbers(read_trail(write_trail([attempt(number) for number in range(1, 101)])))
    assert kept == [*range(1, FIRST_KEPT + 1), *range(101 - LAST_KEPT, 101)]


def test_texts_of_older_executions_go_before_executions_do():
    long = "é" * MAX_TRAIL_ERROR_BYTES
    found = read_trail(write_trail([attempt(number, error=long) for number in range(1, 21)]))
    assert numbers(found) == list(range(1, 21))
    assert found[0].error == ""
    assert len(found[-1].error.encode()) == MAX_TRAIL_ERROR_BYTES


@given(
    st.lists(
        st.builds(
            Attempt,
            number=st.integers(1, 2**31 - 1),
            kind=st.sampled_from(AttemptKind),
            worker=st.text(max_size=400),
            error_class=st.text(max_size=400),
            error=st.text(max_size=3000),
            fingerprint=st.text(max_size=20),
            began_at=st.none() | st.just(NOW),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_a_trail_never_exceeds_its_bound_and_always_has_the_newest(attempts: list[Attempt]):
    trail = write_trail(attempts)
    assert len(trail) <= MAX_TRAIL_BYTES
    found = read_trail(trail)
    assert found[-1].number == attempts[-1].number
    assert write_trail(found) == trail


@given(st.binary(max_size=200))
def test_a_damaged_trail_or_note_reads_as_something_or_nothing(data: bytes):
    assert isinstance(read_trail(data), list)
    assert read_note(data) is None or isinstance(read_note(data), Progress)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.INFLIGHT, AttemptKind.RUNNING),
        (State.DONE, AttemptKind.DONE),
        (State.DLQ, AttemptKind.FAILED),
        (State.CANCELLED, AttemptKind.CANCELLED),
        (State.READY, AttemptKind.LOST),
        (State.SCHEDULED, AttemptKind.LOST),
    ],
)
def test_the_newest_execution_reads_from_the_record(state: State, kind: AttemptKind):
    (only,) = known_executions(info(state, deliveries=1, finished_at=NOW, last_error="E: x", error_class="E"))
    assert (only.number, only.kind, only.worker, only.began_at) == (1, kind, "w", NOW)
    assert only.ended_at == (None if kind in (AttemptKind.RUNNING, AttemptKind.LOST) else NOW)
    assert only.error == ("E: x" if kind is AttemptKind.FAILED else "")


def test_an_execution_in_the_trail_is_reported_once():
    trail = write_trail([attempt(1), attempt(2, AttemptKind.TIMEOUT)])
    assert numbers(known_executions(info(State.DLQ, deliveries=2, trail=trail))) == [1, 2]
    assert numbers(known_executions(info(State.READY, deliveries=2, trail=trail))) == [1, 2]
    assert numbers(known_executions(info(State.DONE, deliveries=3, trail=trail))) == [1, 2, 3]


def test_text_that_utf_8_cannot_hold_is_replaced():
    assert read_trail(write_trail([attempt(1, error="a\ud800b")]))[0].error == "a?b"
    found = read_note(write_note(Progress(done=1, note="a\ud800b")))
    assert found is not None
    assert found.note == "a?b"


def test_a_job_that_was_never_reserved_has_no_attempts():
    assert known_executions(info(State.CANCELLED, deliveries=0)) == []


def test_a_job_cancelled_while_it_waited_was_lost_before():
    def newest(lost: int, trail: bytes = b"", deliveries: int = 2) -> AttemptKind:
        return known_executions(info(State.CANCELLED, deliveries=deliveries, lost=lost, trail=trail))[-1].kind

    assert newest(lost=2) is AttemptKind.LOST
    assert newest(lost=1) is AttemptKind.CANCELLED
    written = write_trail([attempt(1, AttemptKind.LOST), attempt(2, AttemptKind.GIVEN_BACK)])
    assert newest(lost=1, trail=written, deliveries=3) is AttemptKind.CANCELLED
    assert newest(lost=2, trail=written, deliveries=3) is AttemptKind.LOST
    counted_anew = write_trail([attempt(1, AttemptKind.LOST), attempt(2)])
    assert newest(lost=1, trail=counted_anew, deliveries=3) is AttemptKind.LOST


def test_progress_is_read_as_it_was_written():
    progress = Progress(done=3, total=12, note="pages", at=NOW)
    assert read_note(write_note(progress)) == progress
    assert read_note(b"") is None
    assert (progress.fraction, Progress(done=5).fraction, Progress(done=9, total=3).fraction) == (0.25, None, 1.0)


@given(st.text(max_size=3000), st.floats() | st.integers(-(10**12), 10**12), st.none() | st.floats())
def test_a_note_never_exceeds_its_bound(text: str, done: float, total: float | None):
    note = write_note(Progress(done=done, total=total, note=text, at=NOW))
    assert len(note) <= MAX_NOTE_BYTES
    found = read_note(note)
    assert found is not None
    assert text.encode(errors="replace").startswith(found.note.encode()[:-3])
