"""The failure policy: every row of the table in policy/decide.py, the policies' arithmetic, and the error text."""

import asyncio
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from taskharbor.drivers import Cancelled, Fail, JobRecord, Lease, Retry
from taskharbor.model.bounds import MAX_ERROR_BYTES
from taskharbor.model.errors import Cancel, RetryLater, Snooze, Unrecoverable
from taskharbor.model.times import LONGEST
from taskharbor.policy.decide import POLICY_FAILED_DELAY, Terms, after, crashed, give_back, on_error, refuse
from taskharbor.policy.describe import describe, summary
from taskharbor.policy.fingerprint import cause_of
from taskharbor.policy.retry import Exponential, Fixed, Linear

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LEASE = Lease("j", "default", "token", NOW + timedelta(seconds=30))
FIVE = Terms(Fixed(7), 5)


def record(**fields: Any) -> JobRecord:
    return JobRecord(**{"id": "j", "type": "t", **fields})


def decided(error: BaseException, terms: Terms = FIVE, **fields: Any) -> Any:
    return on_error(record(**fields), LEASE, error, terms, NOW).outcome


# The table, row by row


def test_raised_anything_is_a_retry_after_the_policys_delay():
    outcome = decided(ValueError("broken"), attempts=1)
    assert isinstance(outcome, Retry)
    assert (outcome.lease, outcome.run_at, outcome.attempts) == (LEASE, NOW + timedelta(seconds=7), 2)
    assert outcome.failed_at == NOW
    assert outcome.last_error.startswith("ValueError: broken")
    assert outcome.error_class == "ValueError"
    assert outcome.fingerprint == cause_of("t", ValueError("else")).fingerprint


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_exceptions_of_any_kind_are_failures_alike(kind: type[BaseException]):
    assert isinstance(decided(kind("x")), Retry)


def test_the_failure_that_brings_attempts_to_the_limit_is_final():
    outcome = decided(ValueError("broken"), attempts=4)
    known = cause_of("t", ValueError("broken"))
    text = describe(ValueError("broken"))
    assert outcome == Fail(LEASE, "failed 5 of 5 attempts", 5, NOW, text, (), known.error_class, known.fingerprint)


def test_the_jobs_own_limit_wins_over_the_workers():
    assert isinstance(decided(ValueError(), attempts=1, max_attempts=2), Fail)
    assert isinstance(decided(ValueError(), attempts=5, max_attempts=9), Retry)


def test_a_policy_that_returns_none_gives_up():
    outcome = decided(ValueError(), Terms(lambda attempts, error: None, 5))
    assert isinstance(outcome, Fail)
    assert outcome.reason.startswith("its retry policy gave up after ")


def test_a_policy_receives_the_attempts_with_this_failure_and_the_error():
    told: list[Any] = []
    error = ValueError()

    def policy(attempts: int, error: BaseException) -> float:
        told.append((attempts, error))
        return 1

    decided(error, Terms(policy, 5), attempts=2)
    assert told == [(3, error)]


def test_retry_later_has_its_own_delay_and_spends_an_attempt():
    outcome = decided(RetryLater(timedelta(minutes=2), "rate limit"), attempts=1)
    assert (outcome.run_at, outcome.attempts) == (NOW + timedelta(minutes=2), 2)
    assert outcome.last_error.startswith("RetryLater: rate limit")


def test_retry_later_from_an_error_is_known_by_that_error():
    try:
        try:
            raise ConnectionError("the api is busy")
        except ConnectionError as busy:
            raise RetryLater(3) from busy
    except RetryLater as error:
        again, dead = decided(error), decided(error, attempts=4)
    assert (type(again), type(dead)) == (Retry, Fail)
    for outcome in (again, dead):
        assert outcome.error_class == "ConnectionError"
        assert outcome.last_error.startswith("ConnectionError: the api is busy")
    assert again.fingerprint == dead.fingerprint


@pytest.mark.parametrize("signal", [RetryLater, Snooze])
@pytest.mark.parametrize("delay", ["5m", -3, float("nan"), True, [1]])
def test_a_delay_is_checked_where_the_handler_writes_it(signal: Any, delay: Any):
    with pytest.raises((TypeError, ValueError), match=f"{signal.__name__}: delay: expected"):
        signal(delay)


def _unchecked(signal: Any, delay: Any) -> Any:
    """A signal whose delay was changed after it was made."""
    signal.delay = delay
    return signal


def test_retry_later_without_a_delay_asks_the_policy():
    assert decided(RetryLater()).run_at == NOW + timedelta(seconds=7)


def test_retry_later_zero_is_at_once_not_the_policys_delay():
    assert decided(RetryLater(0)).run_at is None


def test_retry_later_with_no_attempts_left_is_final():
    assert isinstance(decided(RetryLater(3), attempts=4), Fail)


def test_unrecoverable_is_dead_at_once_with_its_reason():
    outcome = decided(Unrecoverable("the account was closed"))
    assert (type(outcome), outcome.reason, outcome.attempts) == (Fail, "the account was closed", 1)
    assert outcome.last_error.startswith("Unrecoverable: the account was closed")


def test_exception_types_named_unrecoverable_are_dead_at_once():
    terms = Terms(Fixed(1), 5, (LookupError,))
    assert decided(KeyError("k"), terms).reason == "unrecoverable KeyError: 'k'"
    assert isinstance(decided(ValueError(), terms), Retry)


def test_snooze_records_no_failure():
    assert decided(Snooze(90), attempts=4) == Retry(LEASE, NOW + timedelta(seconds=90), 4)
    assert decided(Snooze(0), attempts=4) == Retry(LEASE, None, 4)


def test_cancel_cancels_with_its_reason():
    assert decided(Cancel("not wanted any more"), attempts=4) == Cancelled(LEASE, "not wanted any more")


def test_a_lease_lost_too_often_is_a_failure_without_counting_an_attempt():
    outcome = crashed(record(attempts=2, lost=3), LEASE, NOW)
    assert (outcome.reason, outcome.attempts, outcome.failed_at) == ("crashed 3 times", 2, NOW)
    assert outcome.error_class == "taskharbor.Crashed"
    assert outcome.fingerprint == crashed(record(lost=5), LEASE, NOW).fingerprint
    assert outcome.fingerprint != crashed(record(type="other", lost=3), LEASE, NOW).fingerprint


def test_a_refusal_counts_an_attempt_and_a_give_back_none():
    outcome = refuse(record(attempts=2), LEASE, "no such parameter", NOW)
    assert (outcome.reason, outcome.attempts, outcome.failed_at) == ("no such parameter", 3, NOW)
    assert outcome.error_class == "taskharbor.Refusal"
    assert outcome.fingerprint == refuse(record(), LEASE, "no such file", NOW).fingerprint
    assert give_back(record(attempts=2), LEASE) == Retry(LEASE, None, 2)


# What users get wrong


class Silent(Unrecoverable):
    """An __init__ of its own that does not call ours: there is no reason."""

    def __init__(self, code: int) -> None:
        self.code = code


class SilentCancel(Cancel):
    def __init__(self) -> None:
        pass


class SilentSnooze(Snooze):
    def __init__(self) -> None:
        pass


class SilentRetry(RetryLater):
    def __init__(self) -> None:
        pass


class Unprintable:
    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unrecoverable(404), "404"),  # type: ignore[arg-type]  # wrong on purpose
        (Unrecoverable({"code": 1}), "{'code': 1}"),  # type: ignore[arg-type]  # wrong on purpose
        (Unrecoverable(""), "unrecoverable"),
        (Unrecoverable(None), "None"),  # type: ignore[arg-type]  # wrong on purpose
        (Unrecoverable(Unprintable()), "unrecoverable"),  # type: ignore[arg-type]  # wrong on purpose
        (Unrecoverable("a\x00b\ud800"), "a\ufffdb\ufffd"),
        (Silent(7), "unrecoverable"),
        (Cancel(5), "5"),  # type: ignore[arg-type]  # wrong on purpose
        (Cancel(""), "cancelled by its handler"),
        (SilentCancel(), "cancelled by its handler"),
    ],
)
def test_a_reason_is_always_text_that_a_store_takes(error: BaseException, reason: str):
    assert decided(error).reason == reason


def test_a_huge_reason_is_cut():
    assert len(decided(Unrecoverable("é" * 10**6)).reason.encode()) <= MAX_ERROR_BYTES
    terms = Terms(Fixed(1), 5, (KeyError,))
    assert len(decided(KeyError("é" * 10**6), terms).reason.encode()) <= MAX_ERROR_BYTES


@pytest.mark.parametrize("error", [SilentSnooze(), _unchecked(Snooze(1), -1), _unchecked(Snooze(1), "soon")])
def test_a_snooze_without_a_usable_delay_is_a_minute_and_reported(error: Snooze):
    decision = on_error(record(attempts=3), LEASE, error, FIVE, NOW)
    assert decision.outcome == Retry(LEASE, NOW + POLICY_FAILED_DELAY, 3)
    assert decision.policy_error is not None


@pytest.mark.parametrize("error", [SilentRetry(), _unchecked(RetryLater(), -1), _unchecked(RetryLater(), "soon")])
def test_a_retry_later_without_a_usable_delay_is_a_minute_and_reported(error: RetryLater):
    decision = on_error(record(), LEASE, error, FIVE, NOW)
    assert isinstance(decision.outcome, Retry)
    assert (decision.outcome.run_at, decision.outcome.attempts) == (NOW + POLICY_FAILED_DELAY, 1)
    assert decision.policy_error is not None


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "policy",
    [
        lambda attempts, error: _raise(ValueError("broken policy")),
        lambda attempts, error: _raise(SystemExit()),
        lambda attempts, error: _raise(KeyboardInterrupt()),
        lambda attempts, error: _raise(asyncio.CancelledError()),
        lambda attempts, error: "soon",
        lambda attempts, error: -1,
        lambda attempts, error: float("nan"),
        lambda attempts, error: True,
        lambda attempts, error: 10**5000,
        lambda: 1,
    ],
)
def test_a_policy_that_raises_or_returns_nonsense_counts_as_a_minute_and_is_reported(policy: Any):
    decision = on_error(record(), LEASE, ValueError(), Terms(policy, 5), NOW)
    assert isinstance(decision.outcome, Retry)
    assert decision.outcome.run_at == NOW + POLICY_FAILED_DELAY
    assert isinstance(decision.policy_error, BaseException)


# When it runs again


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=1000)))
def test_run_at_is_rounded_up_to_a_millisecond(delay: timedelta):
    run_at = after(NOW, delay)
    assert run_at is not None
    assert run_at.microsecond % 1000 == 0
    assert timedelta(0) <= run_at - (NOW + delay) < timedelta(milliseconds=1)


def test_a_delay_past_the_year_9999_ends_there():
    late = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    for delay in (timedelta(microseconds=1), timedelta(days=1), LONGEST):
        run_at = after(late, delay)
        assert run_at is not None
        assert (run_at.year, run_at.microsecond % 1000, run_at.tzinfo) == (9999, 0, UTC)
    assert after(late, timedelta(0)) is None


# The policies

delays = st.one_of(
    st.integers(0, 10**6), st.floats(0, 10**6, allow_nan=False), st.timedeltas(timedelta(0), timedelta(days=9))
)


@given(delays, st.floats(1, 100), delays, st.integers(1, 3000))
def test_exponential_delays_never_shrink_and_stay_under_the_maximum(
    base: Any, factor: float, maximum: Any, attempts: int
):
    policy = Exponential(base, factor, maximum, jitter=0)
    first, second = policy(attempts, ValueError()), policy(attempts + 1, ValueError())
    highest = maximum.total_seconds() if isinstance(maximum, timedelta) else maximum
    assert 0 <= first <= second <= highest


@given(delays, delays, st.integers(1, 3000))
def test_linear_delays_never_shrink_and_stay_under_the_maximum(step: Any, maximum: Any, attempts: int):
    policy = Linear(step, maximum)
    first, second = policy(attempts, ValueError()), policy(attempts + 1, ValueError())
    highest = maximum.total_seconds() if isinstance(maximum, timedelta) else maximum
    assert 0 <= first <= second <= highest


@given(st.floats(0, 10**5), st.floats(1, 10), st.floats(0, 10), st.integers(1, 100))
def test_jitter_only_adds_and_never_more_than_it_says(base: float, factor: float, jitter: float, attempts: int):
    plain = Exponential(base, factor, jitter=0)(attempts, ValueError())
    jittered = Exponential(base, factor, jitter=jitter)(attempts, ValueError())
    assert plain <= jittered <= plain * (1 + jitter) + 1e-6


def test_the_default_grows_from_a_second_to_an_hour():
    policy = Exponential(jitter=0)
    assert [policy(attempts, ValueError()) for attempts in (1, 2, 3, 12, 13, 5000)] == [1, 2, 4, 2048, 3600, 3600]


def test_durations_of_policies_may_be_timedeltas():
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    assert Exponential(minute, 2, hour, 0)(3, ValueError()) == 240
    assert Linear(minute, hour)(3, ValueError()) == 180
    assert Fixed(minute)(3, ValueError()) == minute


def test_the_longest_delay_with_jitter_is_still_a_delay():
    decision = on_error(record(), LEASE, ValueError(), Terms(Exponential(LONGEST, 2, LONGEST, 10), 5), NOW)
    assert decision.policy_error is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Exponential(-1), "Exponential base: expected zero or more seconds, got -1"),
        (lambda: Exponential(1, 0.5), "Exponential factor: expected 1 or more, got 0.5"),
        (lambda: Exponential(1, float("nan")), "Exponential factor: expected 1 or more, got nan"),
        (lambda: Exponential(maximum=-3), "Exponential maximum: expected zero or more seconds, got -3"),
        (lambda: Exponential(jitter=-0.1), "Exponential jitter: expected 0 to 10, got -0.1"),
        (lambda: Exponential(jitter=float("nan")), "Exponential jitter: expected 0 to 10, got nan"),
        (lambda: Fixed(float("inf")), "Fixed delay: expected at most 36525 days, got inf seconds"),
        (lambda: Linear(-2), "Linear step: expected zero or more seconds, got -2"),
        (lambda: Linear(2, -2), "Linear maximum: expected zero or more seconds, got -2"),
    ],
)
def test_an_invalid_policy_is_refused_when_it_is_made(make: Any, said: str):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        make()


@pytest.mark.parametrize("make", [lambda: Exponential("1"), lambda: Fixed(None), lambda: Linear(True)])  # type: ignore[arg-type]  # wrong on purpose
def test_a_delay_of_another_type_is_a_type_error(make: Any):
    with pytest.raises(TypeError, match="expected seconds or a timedelta, got"):
        make()


# A whole life: whatever fails how often, the limit holds


@given(st.integers(1, 8), st.lists(st.sampled_from(["fail", "later", "snooze", "policy"]), min_size=1, max_size=40))
def test_attempts_never_pass_max_attempts(limit: int, endings: list[str]):
    job, now = record(max_attempts=limit), NOW
    errors = {"fail": ValueError("x"), "later": RetryLater(1), "snooze": Snooze(1), "policy": ValueError("y")}
    failures = 0
    for ending in endings:
        terms = Terms((lambda *_: _raise(ValueError())) if ending == "policy" else Exponential(), 5)
        outcome = on_error(job, LEASE, errors[ending], terms, now).outcome
        failures += ending != "snooze"
        assert isinstance(outcome, Retry | Fail)
        assert outcome.attempts == failures <= limit
        assert isinstance(outcome, Fail) == (failures == limit)
        if isinstance(outcome, Fail):
            return
        assert outcome.run_at is not None
        assert outcome.run_at > now
        job, now = record(max_attempts=limit, attempts=outcome.attempts), outcome.run_at


# Error text


def caught(make: Any) -> BaseException:
    try:
        make()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit("never")


class Recursive(Exception):
    def __str__(self) -> str:
        return str(self)


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # wrong on purpose


class Stubborn(str):
    def __format__(self, spec: str) -> str:
        raise ValueError("not like this")

    __str__ = __repr__ = __format__  # type: ignore[assignment]  # wrong on purpose


class Wrapped(Exception):
    def __str__(self) -> str:
        return Stubborn("wrapped")


def test_a_summary_is_class_and_message_in_one():
    assert summary(ValueError("no such account")) == "ValueError: no such account"
    assert summary(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mute(), "Mute: (its text could not be read: SystemExit)"),
        (Recursive(), "Recursive: (its text could not be read: RecursionError)"),
        (NoText(), "NoText: (its text could not be read: TypeError)"),
        (Wrapped(), "Wrapped: wrapped"),
    ],
)
def test_an_exception_whose_str_raises_is_still_described(error: BaseException, said: str):
    assert describe(error) == said


def test_frames_are_listed_with_the_innermost_last():
    text = describe(caught(lambda: _raise(ValueError("here"))))
    assert text.splitlines()[0] == "ValueError: here"
    assert text.index("in caught") < text.index("in _raise")
    assert text.rstrip().endswith("raise error")


def test_our_own_frames_are_left_out():
    text = describe(caught(lambda: Exponential(-1)))
    assert "test_policy.py" in text
    assert "taskharbor/policy" not in text
    assert "taskharbor/model" not in text


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("at the bottom")


def test_a_deep_traceback_keeps_its_innermost_frames():
    text = describe(caught(lambda: deep(sys.getrecursionlimit() - 200)))
    assert text.startswith("ValueError: at the bottom")
    assert text.endswith('raise ValueError("at the bottom")')
    assert 15 < text.count("test_policy.py") <= 20 or "Previous line repeated" in text


def test_notes_are_kept():
    error = ValueError("x")
    error.add_note("while importing row 7")
    assert describe(error) == "ValueError: x\n\nwhile importing row 7"


@pytest.mark.parametrize("notes", [7, None, [1, b"x", "kept"], "text"])
def test_notes_that_are_not_text_are_ignored(notes: Any):
    error = ValueError("x")
    error.__notes__ = notes
    assert describe(error).startswith("ValueError: x")


def test_the_cause_is_described():
    def fail() -> None:
        try:
            _raise(KeyError("row"))
        except KeyError as error:
            raise ValueError("bad import") from error

    text = describe(caught(fail))
    assert text.startswith("ValueError: bad import\n")
    assert "\n\ncaused by KeyError: 'row'\n" in text


def test_the_context_is_described_unless_it_was_suppressed():
    def fail(suppressed: bool) -> None:
        try:
            _raise(KeyError("row"))
        except KeyError:
            if suppressed:
                raise ValueError("bad import") from None
            raise ValueError("bad import")  # noqa: B904 - that is the case

    told, untold = caught(lambda: fail(False)), caught(lambda: fail(True))
    assert "while handling KeyError: 'row'" in describe(told)
    assert "KeyError: 'row'" not in describe(untold)


def test_the_members_of_an_exception_group_are_described():
    inner = ExceptionGroup("inner", [KeyError("third")])
    text = describe(ExceptionGroup("several", [ValueError("first"), SystemError("second"), inner]))
    assert text.startswith("ExceptionGroup: several (3 sub-exceptions)")
    for member in ("ValueError: first", "SystemError: second", "KeyError: 'third'"):
        assert f"in the group: {member}" in text


def test_an_exception_group_of_thousands_is_described_in_part():
    text = describe(ExceptionGroup("many", [ValueError(str(number)) for number in range(10_000)]))
    assert text.count("in the group: ValueError") == 9


def test_a_ring_of_causes_is_described_once():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe(first) == "ValueError: first\n\ncaused by ValueError: second"


@given(st.text(alphabet=st.characters(), max_size=50), st.integers(1, 5000))
def test_error_text_is_always_storable(text: str, times: int):
    described = describe(ValueError(text * times))
    assert len(described.encode()) <= MAX_ERROR_BYTES
    assert "\x00" not in described


@given(st.text(alphabet=st.sampled_from(["a", "\x00", "\ud800", "\udfff", "é", "🎉"]), min_size=1))
def test_nul_and_surrogates_are_replaced(text: str):
    assume(any(character in text for character in "\x00\ud800\udfff"))
    assert "\ufffd" in describe(ValueError(text))


def test_huge_text_does_not_push_the_class_out():
    assert describe(ValueError("x" * 10_000_000)).startswith("ValueError: xxx")
