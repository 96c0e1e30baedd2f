"""The spare process: when one is started, taken and started again."""

import pytest

from taskharbor.model.events import Observers
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import memory, messages
from taskharbor.worker.supervisor.process import Process
from taskharbor.worker.supervisor.roles import MEMORY_CHECK_S, SPARE_MAX_PAUSE_S, RestartLoop, Spare
from tests.supervisor.child_messages import async_test, receive


class Waiters:
    """Slots that serve, or not, and a spare for them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.started: list[Process] = []
        self.fails = False
        self.slot = RestartLoop(0, self.clock, lambda number: self.start(), Observers())
        self.slot.process = Process(0, self.clock)
        self.spare = Spare(self.start)

    async def start(self) -> Process:
        self.started.append(Process(0, self.clock))
        if self.fails:
            self.started[-1].not_started()
        return self.started[-1]

    async def keep(self) -> int:
        await self.spare.keep([self.slot], self.clock.monotonic())
        return len(self.started)


@async_test
async def test_a_spare_is_started_when_all_others_serve_and_is_taken_once() -> None:
    waiters = Waiters()
    assert await waiters.keep() == 0  # the first process is not ready
    assert waiters.slot.process is not None
    receive(waiters.slot.process, messages.Ready("w", None))
    assert await waiters.keep() == 1
    assert await waiters.keep() == 1
    waiters.clock.advance(100)
    assert waiters.spare.take() is waiters.started[0]
    assert waiters.started[0].started_at == waiters.clock.monotonic()  # if it dies soon, that is soon
    assert waiters.spare.take() is None
    assert await waiters.keep() == 2
    waiters.started[1].stopped = True
    assert waiters.spare.take() is None
    waiters.started[1].stopped = False
    waiters.started[1].ended(-9)
    assert waiters.spare.take() is None


@async_test
async def test_pauses_after_the_death_of_a_spare_grow() -> None:
    waiters = Waiters()
    assert waiters.slot.process is not None
    receive(waiters.slot.process, messages.Ready("w", None))
    pauses = []
    waiters.fails = True
    for _ in range(10):
        begun = waiters.clock.monotonic()
        before = len(waiters.started)
        while await waiters.keep() == before:
            waiters.clock.advance(1)
        pauses.append(waiters.clock.monotonic() - begun)
    assert pauses == [0, 5, 10, 20, 40, 80, 160, 320, SPARE_MAX_PAUSE_S, SPARE_MAX_PAUSE_S]


@async_test
async def test_no_spare_is_started_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    waiters = Waiters()
    assert waiters.slot.process is not None
    receive(waiters.slot.process, messages.Ready("w", None))
    sizes = {"free": 199}
    monkeypatch.setattr(memory, "resident", lambda pid: 100)
    monkeypatch.setattr(memory, "free", lambda: sizes["free"])
    assert await waiters.keep() == 0
    sizes["free"] = 200
    assert await waiters.keep() == 0
    waiters.clock.advance(MEMORY_CHECK_S)
    assert await waiters.keep() == 1
