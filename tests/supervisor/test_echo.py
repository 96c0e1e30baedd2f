"""`timeout` and others that pass a signal on send it twice within a moment: that is one signal, told once."""

import asyncio
import signal

import pytest

from taskharbor.model.events import Event
from taskharbor.worker.settings import settings
from taskharbor.worker.supervisor import supervisor as module
from taskharbor.worker.supervisor import wire
from taskharbor.worker.supervisor.events import SupervisorStopping
from taskharbor.worker.supervisor.supervisor import Plan, Supervisor


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_comes_twice_at_once_is_one_and_one_that_comes_later_another(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    monkeypatch.setattr(module, "tell", told.append)

    async def scenario() -> None:
        supervisor = Supervisor(Plan(settings=settings()), wire.Setup(), [], print)
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

    class Dummy:
        def attach(self, loop: asyncio.AbstractEventLoop) -> None:
            loop.call_soon(supervisor._on_signal, signal.SIGTERM)

    supervisor = Supervisor(Plan(settings=settings(), processes=1), wire.Setup(), ["/nonexistent"], print)
    assert asyncio.run(supervisor._main(Dummy())) == 0  # type: ignore[arg-type]  # signals that come by themselves
    assert told.count(SupervisorStopping("SIGTERM")) == 1
