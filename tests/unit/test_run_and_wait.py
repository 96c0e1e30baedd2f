"""How long a job ran and waited, from its record."""

from datetime import UTC, datetime, timedelta
from typing import Any

from taskharbor.model.attempts import Attempt, AttemptKind, ran, waited, write_trail
from taskharbor.model.job import JobInfo, JobRecord, State

START = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def info(state: State, **fields: Any) -> JobInfo:
    return JobInfo(JobRecord(id="j", type="t", created_at=START, **fields), state)


def seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


FAILED = write_trail([Attempt(number=1, kind=AttemptKind.FAILED, began_at=at(10), ended_at=at(12))])


def test_a_job_that_has_not_run_has_only_waited() -> None:
    waiting = info(State.READY)
    assert (ran(waiting, at(5)), seconds(waited(waiting, at(5)))) == (None, 5)
    assert seconds(waited(info(State.SCHEDULED, run_at=at(60)), at(5))) == 0


def test_a_running_job_runs_until_now() -> None:
    running = info(State.INFLIGHT, deliveries=1, began_at=at(3))
    assert (seconds(ran(running, at(10))), seconds(waited(running, at(10)))) == (7, 3)


def test_a_done_job_ran_until_its_end_and_waited_from_its_run_at() -> None:
    done = info(State.DONE, deliveries=1, run_at=at(2), began_at=at(3), finished_at=at(8))
    assert (seconds(ran(done, at(100))), seconds(waited(done, at(100)))) == (5, 1)


def test_a_retried_job_waits_from_its_failure_or_its_run_at() -> None:
    again = {"deliveries": 1, "began_at": at(10), "trail": FAILED}
    assert seconds(ran(info(State.READY, **again), at(20))) == 2
    assert seconds(waited(info(State.READY, **again), at(20))) == 8
    assert seconds(waited(info(State.READY, **again, run_at=at(15)), at(20))) == 5


def test_the_wait_before_the_second_execution_begins_with_the_end_of_the_first() -> None:
    second = info(State.DONE, deliveries=2, began_at=at(15), finished_at=at(16), trail=FAILED)
    assert (seconds(ran(second, at(50))), seconds(waited(second, at(50)))) == (1, 3)


def test_what_is_not_known_is_none_and_nothing_is_negative() -> None:
    assert ran(info(State.DONE, deliveries=1, finished_at=at(5)), at(9)) is None
    assert ran(info(State.READY, deliveries=1, began_at=at(1)), at(9)) is None
    assert seconds(waited(info(State.DONE, deliveries=1, began_at=at(-4), finished_at=at(-5)), at(9))) == 0
    assert seconds(ran(info(State.DONE, deliveries=1, began_at=at(-4), finished_at=at(-5)), at(9))) == 0
