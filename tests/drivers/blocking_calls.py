"""Blocking calls of a driver, as the client makes them, and every one of them in a story."""

import math
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from taskharbor.drivers import (
    AuditPage,
    JobNotFound,
    JobRecord,
    ScheduleChange,
    SchedulePage,
    Seen,
    StoredAudit,
    StoredSchedule,
    WrongState,
)
from taskharbor.drivers.blocking_calls import BlockingCalls
from taskharbor.store.access import run_on_this_thread

T = TypeVar("T")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = math.inf


def job(id: str, **fields: Any) -> JobRecord:
    return JobRecord(id=id, type="t", queue="q", **fields)


def run(calls: BlockingCalls, call: Callable[[Any], Coroutine[Any, Any, T]], deadline: float = LATER) -> T:
    return run_on_this_thread(call, calls.until(deadline))


def make_every_call(calls: BlockingCalls, settle: Callable[[], None] | None = None) -> None:
    """Every call that a client makes; `settle`, if given, acks the job a with the result b"done"."""
    run(calls, lambda driver: driver.open())
    assert abs(run(calls, lambda driver: driver.server_time()) - datetime.now(UTC)) < timedelta(hours=1)
    first = run(calls, lambda driver: driver.enqueue([job("a"), job("b", depends_on=("a",), flow_id="f")], NOW))
    assert [(one.id, one.existed) for one in first] == [("a", False), ("b", False)]
    (again,) = run(calls, lambda driver: driver.enqueue([job("a")], NOW))
    assert again.existed
    assert run(calls, lambda driver: driver.inspect("b", NOW)).state.value == "blocked"
    with pytest.raises(JobNotFound, match="no job c"):
        run(calls, lambda driver: driver.inspect("c", NOW))
    with pytest.raises(JobNotFound):
        run(calls, lambda driver: driver.inspect("\ud800", NOW))
    if settle is not None:
        settle()
    expected = {} if settle is None else {"a": b"done"}
    assert run(calls, lambda driver: driver.results(["a", "c"])) == expected
    assert len(run(calls, lambda driver: driver.flow("f", NOW)).nodes) == 1
    assert [one.job.id for one in run(calls, lambda driver: driver.list(now=NOW)).items] == ["a", "b"]
    assert run(calls, lambda driver: driver.cancel_flow("f", NOW)) == 1
    assert run(calls, lambda driver: driver.requeue(["b"], NOW)) == [None]
    assert run(calls, lambda driver: driver.cancel(["b"], NOW)) == [None]
    assert run(calls, lambda driver: driver.workers(NOW)) == []
    make_the_calls_of_features(calls)


def make_the_calls_of_features(calls: BlockingCalls) -> None:
    """What an operator's client calls, on a driver that offers it. The job b is cancelled."""
    seen = [Seen.of(run(calls, lambda driver: driver.inspect("b", NOW)))]
    assert run(calls, lambda driver: driver.cancel(["b"], NOW, seen)) == [None]
    assert run(calls, lambda driver: driver.requeue(["b"], NOW, None, False, seen)) == [None]
    (refused,) = run(calls, lambda driver: driver.delete(["b"], seen))
    assert isinstance(refused, WrongState)
    assert run(calls, lambda driver: driver.delete(["b"], [Seen(0)])) == [None]
    entry = StoredAudit(id="e", at=NOW, by="ada", data=b"1")
    run(calls, lambda driver: driver.put_audit([entry], NOW))
    assert run(calls, lambda driver: driver.audit(by="ada")) == AuditPage((entry,))
    assert run(calls, lambda driver: driver.audit(by="\ud800")) == AuditPage(())
    if hasattr(calls.until(LATER), "change_schedules"):
        make_the_calls_of_schedules(calls)


def make_the_calls_of_schedules(calls: BlockingCalls) -> None:
    row = StoredSchedule(name="s", queue="q", revision="1", next_at=NOW, body=b"1")
    changes = [ScheduleChange(name="s", expect=None, to=row, jobs=(job("of a schedule"),))]
    assert run(calls, lambda driver: driver.change_schedules(changes, NOW)) == [True]
    assert run(calls, lambda driver: driver.inspect("of a schedule", NOW)).state.value == "ready"
    assert run(calls, lambda driver: driver.schedules(names=["s", "\ud800"])) == SchedulePage((row,))
    assert run(calls, lambda driver: driver.schedules(queue="\ud800")) == SchedulePage(())
