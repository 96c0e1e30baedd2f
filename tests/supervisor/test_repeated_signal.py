"""`timeout` and others that pass a signal on send it twice within a moment: that is one signal, reported once."""

import asyncio
import signal
import threading
from typing import Any

import pytest

from taskharbor.model.events import Event, Observers
from taskharbor.model.process_events import SupervisorStopping
from taskharbor.worker.settings import SupervisorSettings, settings
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor import supervisor as module
from taskharbor.worker.supervisor.supervisor import Supervisor


class Ended:
    """Signals of which one comes by itself: the supervisor ends at once."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon(self._supervisor._on_signal, signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_repetition_within_a_moment_counts_as_the_same_signal(number: signal.Signals) -> None:
    emitted: list[Event] = []

    async def scenario() -> None:
        supervisor = Supervisor(
            SupervisorSettings(worker=settings()), messages.Setup(), [], print, observers=Observers([emitted.append])
        )
        for times in (1, 2, 3):
            for _ in range(5):
                supervisor._on_signal(number)
            assert supervisor._signals == times
            assert supervisor._ending.is_set()
            async with asyncio.timeout(60):
                while len(emitted) < times:
                    await asyncio.sleep(0)
        supervisor._on_signal(number)
        supervisor._on_signal(signal.SIGQUIT)  # another one counts at once
        assert supervisor._signals == 5

    asyncio.run(scenario())
    assert emitted == [SupervisorStopping(number.name)] * 3


def test_a_signal_that_is_not_yet_reported_is_reported_at_the_end() -> None:
    """The program may end before the moment is over."""
    emitted: list[Event] = []

    supervisor = Supervisor(
        SupervisorSettings(worker=settings(), processes=1),
        messages.Setup(),
        ["/nonexistent"],
        print,
        observers=Observers([emitted.append]),
    )
    assert asyncio.run(supervisor._main(Ended(supervisor))) == 0  # type: ignore[arg-type]  # not the signals of a system
    assert emitted.count(SupervisorStopping("SIGTERM")) == 1


def test_a_supervisor_leaves_nothing_behind_that_ends_its_program_later() -> None:
    """Only the command line ends the program when that takes too long; any other program may go on."""
    threads, promised = set(threading.enumerate()), list[tuple[float, int]]()
    ends: list[dict[str, Any]] = [{}, {"on_end": lambda seconds, code: promised.append((seconds, code))}]
    for more in ends:
        plan = SupervisorSettings(worker=settings(shutdown_timeout=7), processes=1)
        supervisor = Supervisor(plan, messages.Setup(), ["/nonexistent"], print, observers=Observers(), **more)
        assert asyncio.run(supervisor._main(Ended(supervisor))) == 0  # type: ignore[arg-type]  # as above
    assert promised == [(7 + module.STOP_PROMISE_S, 0)]
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert set(threading.enumerate()) <= threads
