"""Clocks: the one that follows a store, and the one that tests move by hand."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskharbor import Clock
from taskharbor.model import clock as module
from taskharbor.model.clock import StoreClock
from taskharbor.testing import ManualClock

T0 = datetime(2030, 1, 1, tzinfo=UTC)


class Machine:
    """A machine's own clocks, in place of the module `time`."""

    def __init__(self) -> None:
        self.wall, self.up = T0.timestamp(), 1000.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.up

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    fake = Machine()
    monkeypatch.setattr(module, "time", fake)
    return fake


def follow(clock: StoreClock, machine: Machine, ahead: float, there: float = 0.0, back: float = 0.0) -> timedelta:
    """One look at a store whose clock is `ahead` of the machine's, over a network that takes its time."""

    async def server_time() -> datetime:
        machine.passes(there)
        answer = datetime.fromtimestamp(machine.wall + ahead, UTC)
        machine.passes(back)
        return answer

    return asyncio.run(clock.follow(server_time))


def told(clock: StoreClock, machine: Machine) -> float:
    """How far ahead of the machine the clock says it is."""
    return clock.now().timestamp() - machine.wall


def test_it_is_the_machines_clock_until_it_follows(machine: Machine):
    clock = StoreClock()
    machine.passes(12.3456)
    assert clock.now() == T0 + timedelta(seconds=12, milliseconds=345)
    assert clock.monotonic() == machine.up
    assert isinstance(clock, Clock)


@pytest.mark.parametrize("ahead", [3600.0, -3600.0, 0.05])
def test_follow_takes_over_the_stores_time_and_returns_the_difference(machine: Machine, ahead: float):
    clock = StoreClock()
    assert follow(clock, machine, ahead).total_seconds() == pytest.approx(ahead, abs=0.002)
    machine.passes(100)
    assert told(clock, machine) == pytest.approx(ahead, abs=0.002)


@given(st.floats(-(10**6), 10**6), st.floats(0, 30), st.floats(0, 30))
def test_after_following_the_error_is_at_most_half_the_round_trip(ahead: float, there: float, back: float):
    fake = Machine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", fake)
        clock = StoreClock()
        follow(clock, fake, ahead, there, back)
        # The clock may have kept its own time where the look could not tell better.
        assert abs(told(clock, fake) - ahead) <= (there + back) + 0.003
        follow(clock, fake, ahead)
        assert abs(told(clock, fake) - ahead) <= 0.003


def test_a_slow_reply_within_its_own_error_does_not_move_the_clock(machine: Machine):
    clock = StoreClock()
    follow(clock, machine, 60.0)
    before = told(clock, machine)
    assert follow(clock, machine, 60.0, there=9.0, back=0.0) == timedelta(0)  # off by 4.5 s, error 4.5 s
    assert follow(clock, machine, 60.0, there=0.0, back=9.0) == timedelta(0)
    assert told(clock, machine) == pytest.approx(before, abs=0.002)


def test_a_slow_reply_moves_the_clock_if_the_difference_is_larger_than_its_error(machine: Machine):
    clock = StoreClock()
    follow(clock, machine, 3600.0, there=2.0, back=2.0)
    assert told(clock, machine) == pytest.approx(3600.0, abs=2.01)


def test_the_clock_is_stale_after_a_minute(machine: Machine):
    clock = StoreClock()
    assert clock.stale()
    follow(clock, machine, 0.0)
    machine.passes(59.0)
    assert not clock.stale()
    machine.passes(1.0)
    assert clock.stale()


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_the_clock_is_stale_after_the_machine_slept_or_its_clock_was_set(machine: Machine, step: float):
    clock = StoreClock()
    follow(clock, machine, 0.0)
    machine.wall += step  # asleep, the monotonic clock stands still
    assert clock.stale()
    follow(clock, machine, 0.0)
    assert not clock.stale()
    assert told(clock, machine) == pytest.approx(0.0, abs=0.002)


def test_a_step_of_the_machines_clock_moves_nothing(machine: Machine):
    clock = StoreClock()
    before = clock.now()
    machine.wall += 7200
    assert clock.now() == before
    machine.wall -= 14400
    assert clock.now() == before


def test_a_store_that_does_not_reply_leaves_the_clock_unchanged(machine: Machine):
    clock = StoreClock()
    before = clock.now()

    async def gone() -> datetime:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(clock.follow(gone))
    assert clock.now() == before


def test_now_is_aware_and_in_whole_milliseconds(machine: Machine):
    clock = StoreClock()
    for _ in range(1000):
        machine.passes(0.0001234)
        assert clock.now().tzinfo is UTC
        assert clock.now().microsecond % 1000 == 0


# The manual clock


def test_it_stands_still_until_it_is_moved():
    clock = ManualClock(T0)
    assert (clock.now(), clock.monotonic()) == (T0, 0.0)
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert (clock.now(), clock.monotonic()) == (T0 + timedelta(seconds=61.5), 61.5)
    assert isinstance(clock, Clock)


def test_a_step_of_now_does_not_move_monotonic_time():
    clock = ManualClock(T0)
    clock.step(timedelta(hours=-1))
    assert (clock.now(), clock.monotonic()) == (T0 - timedelta(hours=1), 0.0)
    clock.step(90)
    assert clock.now() == T0 - timedelta(hours=1) + timedelta(seconds=90)


def test_the_start_needs_a_time_zone_and_may_be_in_any():
    assert ManualClock(datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))).now() == T0
    with pytest.raises(ValueError, match="start: expected a datetime with a time zone, got the naive"):
        ManualClock(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the case


@pytest.mark.parametrize("by", [-1, float("nan"), timedelta(seconds=-1)])
def test_it_never_goes_back_by_advancing(by: Any):
    clock = ManualClock()
    with pytest.raises(ValueError, match="advance: expected"):
        clock.advance(by)
    assert clock.monotonic() == 0


def test_moves_below_a_millisecond_add_up():
    clock = ManualClock(T0)
    for _ in range(10):
        clock.advance(0.0001)
    assert clock.now() == T0 + timedelta(milliseconds=1)


async def sleeping(clock: ManualClock, count: int) -> None:
    while clock.sleepers < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("steps", range(1, 30))
async def test_a_sleeper_wakes_at_its_time_in_one_step_or_many(steps: int):
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(steps / 10))
    await sleeping(clock, 1)
    for _ in range(steps - 1):
        clock.advance(0.1)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.1)
    await sleeper


def test_sleepers_wake_in_the_order_of_their_moments():
    async def scenario() -> list[int]:
        clock, woken = ManualClock(), list[int]()

        async def sleep(seconds: int) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        sleepers = [asyncio.create_task(sleep(seconds)) for seconds in (3, 1, 2, 5)]
        await sleeping(clock, 4)
        clock.advance(4)
        await asyncio.gather(*sleepers[:3])
        assert clock.sleepers == 1
        sleepers[3].cancel()
        await asyncio.gather(sleepers[3], return_exceptions=True)
        assert clock.sleepers == 0  # nothing is left of a sleep that was cancelled
        return woken

    assert asyncio.run(scenario()) == [1, 2, 3]


async def test_a_sleep_of_zero_lets_other_tasks_run():
    clock, turns = ManualClock(), list[str]()

    async def other() -> None:
        turns.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(0)
    await clock.sleep(-1)
    assert turns == ["other"]
    await task


@pytest.mark.parametrize("seconds", [1e-9, float("inf"), 1e300])
async def test_no_sleep_is_too_short_or_too_long(seconds: float):
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(seconds))
    await sleeping(clock, 1)
    assert not sleeper.done()
    clock.advance(1)
    if seconds > 1:
        sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


def test_loops_of_many_threads_sleep_on_one_clock():
    clock, count = ManualClock(), 8
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    threads = [threading.Thread(target=asyncio.run, args=(sleeper(1 + number),)) for number in range(count)]
    for thread in threads:
        thread.start()
    asyncio.run(sleeping(clock, count))
    for _ in range(count):
        clock.advance(1)
    for thread in threads:
        thread.join(30)
    assert sorted(woken) == [1 + number for number in range(count)]


def test_a_closed_loop_does_not_keep_other_sleepers_asleep():
    clock = ManualClock()
    closed = asyncio.new_event_loop()
    abandoned = closed.create_task(clock.sleep(1))
    closed.run_until_complete(asyncio.sleep(0))

    async def scenario() -> None:
        sleeper = asyncio.create_task(clock.sleep(2))
        await sleeping(clock, 2)
        closed.close()
        clock.advance(5)
        await sleeper

    asyncio.run(scenario())
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined] # it was abandoned on purpose
    abandoned.get_coro().close()
