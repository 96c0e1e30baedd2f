"""Observers: called, asked first, and never able to break the code that emits."""

import asyncio
import functools
import logging
import threading
from typing import Any

import pytest

from taskharbor import events
from taskharbor.drivers import JobRecord
from taskharbor.events import Event, JobReserved, JobStarted, WorkerStopped
from taskharbor.model.events import Observers

JOB = JobRecord(id="j", type="t")
EVENT = JobStarted(JOB, "w")


def test_every_observer_gets_every_event_in_order():
    heard: list[Any] = []
    observers = Observers([lambda event: heard.append((1, event)), lambda event: heard.append((2, event))])
    observers.emit(EVENT)
    observers.emit(WorkerStopped("w"))
    assert heard == [(1, EVENT), (2, EVENT), (1, WorkerStopped("w")), (2, WorkerStopped("w"))]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration])
def test_an_error_in_an_observer_reaches_neither_the_caller_nor_other_observers(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
):
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise kind("c4n4ry")

    Observers([broken, heard.append]).emit(EVENT)
    assert heard == [EVENT]
    assert kind.__name__ in caplog.text
    assert "c4n4ry" not in caplog.text


def test_an_interrupt_in_an_observer_is_raised():
    def interrupted(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Observers([interrupted]).emit(EVENT)


def test_a_broken_observer_is_reported_once_for_each_kind_of_failure(caplog: pytest.LogCaptureFixture):
    failures: list[Exception] = [ValueError(), KeyError(), ValueError(), KeyError(), OSError()]

    def broken(event: Event) -> None:
        raise failures.pop()

    observers = Observers([broken])
    while failures:
        observers.emit(EVENT)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


def test_the_report_shows_the_observers_name_and_none_of_its_arguments(caplog: pytest.LogCaptureFixture):
    def send(key: str, event: Event) -> None:
        raise ValueError

    class Sender:
        def __repr__(self) -> str:
            return "c4n4ry"

        def __call__(self, event: Event) -> None:
            raise ValueError

    Observers([functools.partial(send, "c4n4ry"), Sender()]).emit(EVENT)
    assert "Sender" in caplog.text
    assert "c4n4ry" not in caplog.text


def test_a_log_handler_that_fails_breaks_nothing():
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("disk full")

    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError

    handler = Broken()
    logging.getLogger("taskharbor").addHandler(handler)
    try:
        Observers([broken, heard.append]).emit(EVENT)
    finally:
        logging.getLogger("taskharbor").removeHandler(handler)
    assert heard == [EVENT]


class Choosy:
    def __init__(self, *wanted: type[Event]) -> None:
        self.wanted = wanted
        self.heard: list[Event] = []

    def wants(self, event_type: type[Event]) -> bool:
        return event_type in self.wanted

    def __call__(self, event: Event) -> None:
        self.heard.append(event)


def test_an_observer_receives_only_the_events_it_wants():
    choosy, all_of_them = Choosy(JobReserved), Choosy(JobReserved, JobStarted)
    observers = Observers([choosy, all_of_them])
    observers.emit(EVENT)
    observers.emit(JobReserved(JOB, "w"))
    assert choosy.heard == [JobReserved(JOB, "w")]
    assert all_of_them.heard == [EVENT, JobReserved(JOB, "w")]


def test_an_event_is_emitted_if_any_observer_wants_it():
    assert not Observers([]).wants(JobStarted)
    assert not Observers([Choosy(JobReserved)]).wants(JobStarted)
    assert Observers([Choosy(JobReserved), Choosy(JobStarted)]).wants(JobStarted)
    assert Observers([Choosy(), lambda event: None]).wants(JobStarted)  # one that does not say wants all


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
def test_a_wants_that_raises_counts_as_false_and_is_reported(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
):
    class Broken(Choosy):
        def wants(self, event_type: type[Event]) -> bool:
            raise kind

    broken, heard = Broken(JobStarted), Choosy(JobStarted)
    assert not Observers([broken]).wants(JobStarted)
    assert Observers([broken, heard]).wants(JobStarted)
    Observers([broken, heard]).emit(EVENT)
    assert (broken.heard, heard.heard) == ([], [EVENT])
    assert kind.__name__ in caplog.text


def test_many_threads_may_emit_at_once_without_losing_events():
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError

    observers = Observers([broken, heard.append])
    barrier = threading.Barrier(8)

    def tell() -> None:
        barrier.wait()
        for _ in range(500):
            observers.emit(EVENT)

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == 8 * 500


def test_the_public_events_are_all_there_are():
    def kinds(kind: type[Event]) -> set[type[Event]]:
        return {kind}.union(*(kinds(below) for below in kind.__subclasses__()))

    exported = {getattr(events, name) for name in events.__all__} - {events.Observer}
    # A supervisor has events of its own, which only its log and its metrics receive.
    assert exported == {kind for kind in kinds(Event) if kind.__module__ == "taskharbor.model.events"}
    others = {kind.__module__ for kind in kinds(Event) if kind.__module__.startswith("taskharbor.")}
    assert others <= {"taskharbor.model.events", "taskharbor.model.process_events"}


def test_events_are_values_that_cannot_be_changed():
    assert JobStarted(JOB, "w") == EVENT
    with pytest.raises(AttributeError):
        EVENT.worker = "x"  # type: ignore[misc]  # frozen: wrong on purpose
