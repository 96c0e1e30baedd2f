"""Which process stores the schedules that the app declares: one, once, and another if that one ends before."""

import pytest

from taskharbor import Worker
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import Declarations
from tests.supervisor.child_messages import async_test, receive
from tests.supervisor.test_child_channel import Line


class Fleet:
    """Processes, and which of them were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[Process] = []
        self.asked: list[Process] = []
        self.declarations = Declarations(lambda: self.processes)
        monkeypatch.setattr(Process, "send", lambda process, message: self.asked.append(process))

    def start(self, *, schedules: bool = True) -> Process:
        process = Process(len(self.processes), ManualClock())
        process.on_message = self.on_message
        self.processes.append(process)
        receive(process, messages.Ready("w", None, None, schedules))
        self.declarations.ready(process)
        return process

    def on_message(self, process: Process, message: messages.ToParent) -> None:
        if isinstance(message, messages.Declared):
            self.declarations.stored(process)

    def end(self, process: Process) -> None:
        self.processes.remove(process)
        self.declarations.gone(process)


@async_test
async def test_the_first_process_that_serves_stores_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    first = fleet.start()
    fleet.start()
    assert fleet.asked == [first]
    receive(first, messages.Declared())
    fleet.end(first)
    fleet.start()  # what replaces it does not do so again
    assert fleet.asked == [first]


@async_test
async def test_another_one_is_asked_if_it_ends_before(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    first, second = fleet.start(), fleet.start()
    fleet.end(first)
    assert fleet.asked == [first, second]
    receive(first, messages.Declared())  # too late: it was not stored as far as anyone knows
    fleet.end(second)
    third = fleet.start()
    assert fleet.asked == [first, second, third]
    receive(third, messages.Declared())
    fleet.end(third)
    fleet.start()
    assert len(fleet.asked) == 3


@async_test
async def test_one_that_is_stopping_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    first, second = fleet.start(), fleet.start()
    second.state = "stopping"
    fleet.end(first)
    assert fleet.asked == [first]


@async_test
async def test_an_app_without_schedules_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.start(schedules=False)
    assert fleet.asked == []


@async_test
async def test_code_that_was_reloaded_is_stored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    first = fleet.start()
    receive(first, messages.Declared())
    fleet.declarations.changed()
    fleet.end(first)
    second = fleet.start()
    assert fleet.asked == [first, second]


def test_the_order_reaches_the_worker_and_its_answer_the_supervisor() -> None:
    line, asked = Line(), list[str]()
    try:

        class Noting(Worker):
            def _order(self, what: str) -> None:
                asked.append(what)

        line.channel.attach(Noting("memory://"))
        line.channel._receive(messages.read_by_child(messages.line(messages.ProcessOrder("declare"))))
        assert asked == ["declare"]
        line.channel.declared()
        assert messages.Declared() in line.said()
        while line.channel._send(messages.Waiting()):  # until the parent does not read
            continue
        line.channel.declared()
        assert messages.Declared() not in line.said()
        line.channel.tick(ManualClock())
        assert line.said().count(messages.Declared()) == 1
        line.channel.tick(ManualClock())
        assert messages.Declared() not in line.said()
    finally:
        line.close()
