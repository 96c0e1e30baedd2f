"""What an outcome adds to the trail of its job."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskharbor.model.executions import Attempt, AttemptKind, read_trail, write_trail
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease, Lost
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.policy.trail import with_trail

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(seconds=5)
LEASE = Lease("j", "default", "token", NOW + timedelta(seconds=30))
LOST = Lost("dead", BEGAN - timedelta(minutes=2), BEGAN - timedelta(minutes=1))


def record(**fields: Any) -> JobRecord:
    return JobRecord(id="j", type="t", **{"deliveries": 3, "began_at": BEGAN, "ran_on": "w", "attempts": 1, **fields})


def added(outcome: Outcome, job: JobRecord | None = None, **how: Any) -> list[Attempt]:
    return read_trail(with_trail(job or record(), outcome, NOW, **how).trail)


RETRIED = Retry(LEASE, NOW, 2, "ValueError: x", NOW, "ValueError", "f" * 16)
DEAD = Fail(LEASE, "failed 2 of 2 attempts", 2, NOW, "ValueError: x", (), "ValueError", "f" * 16)


@pytest.mark.parametrize(
    ("outcome", "how", "kind", "error"),
    [
        (RETRIED, {}, "failed", "ValueError: x"),
        (RETRIED, {"timed_out": True}, "timeout", "ValueError: x"),
        (DEAD, {}, "failed", "ValueError: x"),
        (DEAD, {"timed_out": True}, "timeout", "ValueError: x"),
        (Fail(LEASE, "crashed 3 times", 1, NOW), {}, "failed", "crashed 3 times"),
        (Retry(LEASE, NOW, 1), {"snoozed": True, "why": "snoozed"}, "snoozed", ""),
        (Retry(LEASE, None, 1), {"why": "shutdown"}, "given_back", "shutdown"),
        (Cancelled(LEASE, "not wanted"), {}, "cancelled", "not wanted"),
    ],
)
def test_an_execution_is_kept_as_it_ended(outcome: Any, how: dict[str, Any], kind: str, error: str) -> None:
    [attempt] = added(outcome, **how)
    failed = outcome in (RETRIED, DEAD)
    assert attempt == Attempt(
        number=3,
        kind=AttemptKind(kind),
        worker="w",
        began_at=BEGAN,
        ended_at=NOW,
        error_class="ValueError" if failed else "",
        error=error,
        fingerprint="f" * 16 if failed else "",
    )


def test_an_ack_stays_as_it_is_unless_an_execution_was_lost() -> None:
    ack = Ack(LEASE, b"1")
    assert with_trail(record(), ack, NOW) is ack
    [attempt] = added(ack, lost_by=LOST)
    assert attempt == Attempt(
        number=2, kind=AttemptKind.LOST, worker="dead", began_at=LOST.began_at, ended_at=LOST.ended_at
    )


def test_a_lost_execution_comes_before_the_one_that_writes_it() -> None:
    assert [(each.number, each.kind) for each in added(RETRIED, lost_by=LOST)] == [(2, "lost"), (3, "failed")]


def test_earlier_executions_stay() -> None:
    first = Attempt(number=1, kind=AttemptKind.SNOOZED, worker="a", began_at=BEGAN, ended_at=BEGAN)
    attempts = added(RETRIED, record(trail=write_trail([first])), lost_by=LOST)
    assert [each.number for each in attempts] == [1, 2, 3]
    assert attempts[0] == first


def test_an_execution_is_never_in_the_trail_twice() -> None:
    job = record()
    again = record(trail=with_trail(job, RETRIED, NOW, lost_by=LOST).trail)
    assert [each.number for each in added(DEAD, again, lost_by=LOST)] == [2, 3]


def test_a_damaged_trail_is_begun_anew() -> None:
    assert [each.number for each in added(RETRIED, record(trail=b"\xc1 damaged"))] == [3]


def test_a_record_that_a_driver_filled_wrongly_costs_the_trail_and_not_the_outcome() -> None:
    naive: Any = BEGAN.replace(tzinfo=None)
    assert with_trail(record(began_at=naive), RETRIED, NOW) is RETRIED
    assert with_trail(record(deliveries="three"), RETRIED, NOW, lost_by=LOST) is RETRIED
