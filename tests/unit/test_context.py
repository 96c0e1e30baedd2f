"""The signal that tells a handler to stop, across threads and loops, and the context it comes with."""

import asyncio
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from taskharbor import JobContext
from taskharbor.drivers import JobRecord
from taskharbor.model.bounds import MAX_KEY_BYTES
from taskharbor.model.job import replace
from taskharbor.tasks.context import CancelSignal

JOB = JobRecord(id="j", type="t", queue="mail", attempts=2, deliveries=7, payload=b"c4n4ry", metadata={"k": "c4n4ry"})


def test_the_first_reason_stays():
    signal = CancelSignal()
    assert (bool(signal), signal.is_set(), signal.reason) == (False, False, None)
    signal.set("timeout")
    signal.set("shutdown")
    assert (bool(signal), signal.is_set(), signal.reason) == (True, True, "timeout")


def test_an_empty_reason_sets_the_signal():
    signal = CancelSignal()
    signal.set("")
    assert signal
    assert signal.wait(0)


def test_wait_returns_at_the_signal_or_after_the_timeout():
    signal = CancelSignal()
    assert signal.wait(0) is False
    signal.set("shutdown")
    assert signal.wait(0) is True
    assert signal.wait() is True


def test_a_thread_that_waits_is_woken_by_another():
    signal, answers = CancelSignal(), list[bool]()
    threads = [threading.Thread(target=lambda: answers.append(signal.wait(30))) for _ in range(8)]
    for thread in threads:
        thread.start()
    signal.set("lease lost")
    for thread in threads:
        thread.join(30)
    assert answers == [True] * 8


def test_a_coroutine_is_woken_from_another_thread():
    async def scenario() -> list[str]:
        signal = CancelSignal()
        waiting = [asyncio.create_task(signal.hit()) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(signal.set, "cancelled")
        return [*await asyncio.gather(*waiting), await signal.hit()]

    # In debug mode a loop refuses what another thread does to it without being asked to.
    assert asyncio.run(scenario(), debug=True) == ["cancelled"] * 4


def test_a_subscriber_is_called_once_and_immediately_if_the_signal_is_set():
    signal, calls = CancelSignal(), list[str]()
    signal.subscribe(lambda: calls.append("early"))
    signal.set("timeout")
    signal.set("timeout")
    signal.subscribe(lambda: calls.append("late"))
    assert calls == ["early", "late"]


class Silent(Exception):
    """Cannot be described: its text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


RAISED = [ValueError("c4n4ry"), RuntimeError("c4n4ry"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]


@pytest.mark.parametrize("error", [*RAISED, GeneratorExit(), Silent()], ids=lambda error: type(error).__name__)
def test_an_error_in_a_callback_is_logged_and_not_raised(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[str]()

    def broken() -> None:
        raise error

    context = JobContext(JOB)
    context.cancelled.subscribe(broken)
    context.cancelled.subscribe(lambda: calls.append("called"))
    context.cancelled.set("timeout")
    context.cancelled.subscribe(broken)  # late: the same
    assert calls == ["called"]
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert (record.levelname, record.__dict__["job_id"], record.__dict__["queue"]) == ("ERROR", "j", "mail")
        assert f"broken, failed with {type(error).__name__}" in record.getMessage()
    assert "c4n4ry" not in caplog.text


def test_an_error_in_logging_a_callback_error_is_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    signal, calls = CancelSignal(), list[str]()
    monkeypatch.setattr(logging.Logger, "log", lambda *args, **extra: 1 / 0)
    signal.subscribe(lambda: 1 / 0)
    signal.subscribe(lambda: calls.append("called"))
    signal.set("timeout")
    assert calls == ["called"]


def test_setting_waiting_and_subscribing_at_once_loses_no_wake_up():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            signal, barrier, calls = CancelSignal(), threading.Barrier(4), list[str]()

            def subscribe(signal: Any = signal, barrier: Any = barrier, calls: Any = calls) -> None:
                barrier.wait()
                signal.subscribe(lambda: calls.append("subscribed"))

            def wait(signal: Any = signal, barrier: Any = barrier, calls: Any = calls) -> None:
                barrier.wait()
                if signal.wait(30):
                    calls.append("waited")

            def end(signal: Any = signal, barrier: Any = barrier) -> None:
                barrier.wait()
                signal.set("timeout")

            threads = [threading.Thread(target=target) for target in (subscribe, wait, wait, end)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert sorted(calls) == ["subscribed", "waited", "waited"]
    finally:
        sys.setswitchinterval(before)


def test_many_setters_agree_on_one_reason():
    for _ in range(50):
        signal, barrier, seen = CancelSignal(), threading.Barrier(4), list[str | None]()

        def end(reason: str, signal: Any = signal, barrier: Any = barrier, seen: Any = seen) -> None:
            barrier.wait()
            signal.set(reason)
            seen.append(signal.reason)

        threads = [threading.Thread(target=end, args=(str(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(seen)) == 1


def test_all_threads_see_the_same_signal_of_a_context():
    for _ in range(50):
        context, barrier, seen = JobContext(JOB), threading.Barrier(4), list[int]()

        def look(context: Any = context, barrier: Any = barrier, seen: Any = seen) -> None:
            barrier.wait()
            seen.append(id(context.cancelled))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(seen)) == 1


def test_a_context_has_its_job_worker_deadline_and_fence():
    deadline = datetime(2030, 1, 1, tzinfo=UTC)
    context = JobContext(JOB, "w", deadline)
    assert (context.job, context.deadline, context.fence) == (JOB, deadline, 7)
    assert "c4n4ry" not in repr(context)


def test_a_key_is_the_same_in_every_execution_and_another_for_every_job_and_name():
    ids, names = ("j", "j:a", "j%3Aa", "01M7HG69P849N38WGBK6M8KYDV"), ("a", "b", "a:b", ":a")
    keys = {JobContext(replace(JOB, id=id)).key(name) for id in ids for name in names}
    assert len(keys) == len(ids) * len(names)
    assert "01M7HG69P849N38WGBK6M8KYDV:a" in keys
    later = replace(JOB, attempts=0, deliveries=9, edits=1, payload=b"other")
    assert JobContext(later, "w").key("a") == JobContext(JOB).key("a")
    whole = JobContext(replace(JOB, id="j" * 255)).key("n" * 255)
    assert len(whole.encode()) <= MAX_KEY_BYTES


@pytest.mark.parametrize("name", ["", "n" * 256, "a\nb", 7, None])
def test_a_bad_name_of_a_key_is_refused(name: Any):
    with pytest.raises(ValueError, match="key: expected"):
        JobContext(JOB).key(name)


def test_progress_reaches_the_callback_if_there_is_one():
    told: list[Any] = []
    JobContext(JOB).progress(1, 2, "x")
    JobContext(JOB, _progress=lambda *facts: told.append(facts)).progress(1, 2, "half")
    assert told == [(JOB, 1, 2, "half")]


def test_a_contexts_log_carries_the_job_and_none_of_its_data(caplog: pytest.LogCaptureFixture):
    context = JobContext(JOB)
    assert context.log is context.log
    with caplog.at_level(logging.INFO, "taskharbor.job"):
        context.log.info("at work")
    (record,) = caplog.records
    facts = vars(record)
    assert (facts["job_id"], facts["job_type"], facts["queue"], facts["attempt"]) == ("j", "t", "mail", 3)
    assert "c4n4ry" not in str(facts)


def test_a_transaction_needs_a_sql_store():
    with pytest.raises(RuntimeError, match=r"ctx.transaction\(\) needs a driver on a SQL store"):
        JobContext(JOB).transaction()


def test_a_waiter_on_a_closed_loop_does_not_keep_others_from_the_signal() -> None:
    signal, heard = CancelSignal(), []

    async def leave() -> None:
        asyncio.get_running_loop().create_task(signal.hit())
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    [task] = asyncio.all_tasks(loop)
    loop.close()
    signal.subscribe(lambda: heard.append("later"))
    signal.set("timeout")
    assert heard == ["later"]
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # private to asyncio
    task.get_coro().close()


def test_cancelled_waits_leave_nothing_behind() -> None:
    signal = CancelSignal()

    async def main() -> None:
        for _ in range(5):
            waiting = asyncio.create_task(signal.hit())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(main())
    assert signal._callbacks == []
