"""`timeout` and others that pass a signal on send it twice within a moment: that is one signal, told once."""

import asyncio
import signal
import threading

import pytest

from taskharbor.model.events import Event
from taskharbor.worker.settings import settings
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor import supervisor as module
from taskharbor.worker.supervisor.events import SupervisorStopping
from taskharbor.worker.supervisor.supervisor import Supervisor, SupervisorSettings


class Ended:
    """Signals of which one comes by itself: the supervisor ends at once."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._supervisor._on_signal, signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_twice_at_once_is_one_and_one_that_comes_later_another(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    monkeypatch.setattr(module, "tell", told.append)

    async def scenario() -> None:
        supervisor = Supervisor(SupervisorSettings(settings=settings()), messages.Setup(), [], print)
        supervisor._ending, supervisor._changed = asyncio.Event(), asyncio.Event()
        for times in (1, 2, 3):
            for _ in range(5):
                supervisor._on_signal(number)
            assert supervisor._signals == times
            assert supervisor._ending.is_set()
            async with asyncio.timeout(60):
                while len(told) < times:
                    await asyncio.sleep(0)
        supervisor._on_signal(number)
        supervisor._on_signal(signal.SIGQUIT)  # another one counts at once
        assert supervisor._signals == 5

    asyncio.run(scenario())
    assert told == [SupervisorStopping(number.name)] * 3


def test_what_is_about_to_be_told_is_told_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program may end before the moment is over."""
    told: list[Event] = []
    monkeypatch.setattr(module, "tell", told.append)

    supervisor = Supervisor(
        SupervisorSettings(settings=settings(), processes=1), messages.Setup(), ["/nonexistent"], print
    )
    assert asyncio.run(supervisor._main(Ended(supervisor))) == 0  # type: ignore[arg-type]  # not the signals of a system
    assert told.count(SupervisorStopping("SIGTERM")) == 1


def test_a_supervisor_leaves_nothing_behind_that_ends_its_program_later() -> None:
    """Only the command line ends the program when that takes too long: whoever else runs one may go on."""
    threads, promised = set(threading.enumerate()), list[tuple[float, int]]()
    for on_end in (None, lambda seconds, code: promised.append((seconds, code))):
        plan = SupervisorSettings(settings=settings(shutdown_timeout=7), processes=1)
        supervisor = Supervisor(plan, messages.Setup(), ["/nonexistent"], print, on_end=on_end)
        assert asyncio.run(supervisor._main(Ended(supervisor))) == 0  # type: ignore[arg-type]  # as above
    assert promised == [(7 + module.PROMISED, 0)]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert set(threading.enumerate()) <= threads
