"""Suspects one step at a time: which process gives a suspect back, and which one learns of its runner's death."""

from typing import cast

import pytest

from taskharbor.model.events import Observers
from taskharbor.testing import ManualClock
from taskharbor.worker.supervisor import messages
from taskharbor.worker.supervisor.heart import FleetHeart
from taskharbor.worker.supervisor.process import HeldLease, Process
from taskharbor.worker.supervisor.roles import Suspects
from tests.supervisor.child_messages import async_test, receive, taken

LEASE = taken("s")


class Yard:
    """Suspects of one taker, with a keeper that only notes what is asked of it."""

    def __init__(self, most: int = 1) -> None:
        self.given: list[str] = []
        self.released: list[str] = []
        self.told: list[list[str]] = []
        self.started: list[Process] = []
        self.starts = True
        self.suspects = Suspects(self.start, lambda: cast(FleetHeart, self), most, Observers())
        self.taker = Process(0, ManualClock())
        self.taker.worker = "taker"
        self.taker.send = lambda message: self.told.append(message.keep)  # type: ignore[union-attr,method-assign]  # replaced for the test

    async def start(self) -> Process:
        self.started.append(Process(0, ManualClock()))
        if not self.starts:
            self.started[-1].not_started()
        return self.started[-1]

    async def give_back(self, lease: HeldLease, seconds: float) -> None:
        assert seconds > 0
        self.given.append(lease.lease.token)

    async def release(self, worker: str) -> None:
        self.released.append(worker)

    async def take(self, lease: messages.TakenLease = LEASE, ending: bool = False) -> None:
        await self.suspects.take(self.taker, lease, ending=ending)

    async def ended(self, code: int) -> None:
        self.started[0].ended(code)
        await self.suspects.gone(self.started[0])
        assert self.suspects.tokens("taker") == []
        assert self.started[0] not in self.suspects


@async_test
async def test_a_suspect_is_renewed_for_its_runner_and_not_released_for_its_taker() -> None:
    yard = Yard()
    await yard.take()
    [runner] = yard.started
    assert [lease.lease.token for lease in runner.renewable(0)] == ["s"]
    assert yard.suspects.tokens("taker") == ["s"]
    assert runner in yard.suspects
    await yard.take(taken("second"))  # there is no room
    assert (yard.given, len(yard.started)) == (["second"], 1)


@async_test
async def test_a_suspect_is_known_before_its_process_has_started() -> None:
    yard = Yard()
    seen: list[list[str]] = []
    start = yard.start

    async def slow() -> Process:
        seen.append(yard.suspects.tokens("taker"))
        return await start()

    yard.suspects._start = slow
    await yard.take()
    assert seen == [["s"]]


@async_test
async def test_a_suspect_is_given_back_at_the_end_and_without_a_process() -> None:
    yard = Yard(most=5)
    await yard.take(ending=True)
    yard.starts = False
    await yard.take(taken("t"))
    assert yard.given == ["s", "t"]
    assert yard.suspects.tokens("taker") == []


@pytest.mark.parametrize("code", [0, -9, 2])
@async_test
async def test_a_process_that_never_began_costs_its_suspect_nothing(code: int) -> None:
    yard = Yard()
    await yard.take()
    yard.started[0].killed = code == -9
    await yard.ended(code)
    assert (yard.given, yard.told, yard.released) == (["s"], [], [])


@pytest.mark.parametrize("gone", [False, True])
@async_test
async def test_the_death_of_its_process_is_reported_to_its_taker_or_the_store(gone: bool) -> None:
    yard = Yard(most=2)
    await yard.take()
    receive(yard.started[0], messages.Taken([LEASE], []))
    if gone:
        yard.taker.ended(-9)
    await yard.ended(-9)
    assert (yard.given, yard.told, yard.released) == (([], [], ["taker"]) if gone else ([], [[]], []))


@async_test
async def test_nothing_is_released_after_a_good_end_or_our_own_kill() -> None:
    for code, killed in ((0, False), (-9, True)):
        yard = Yard()
        await yard.take()
        receive(yard.started[0], messages.Taken([LEASE], []))
        yard.started[0].killed = killed
        await yard.ended(code)
        assert (yard.given, yard.told, yard.released) == ([], [], [])
