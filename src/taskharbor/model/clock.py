"""The clock: the only place where core reads the time.

`StoreClock`, the default, follows the store's clock, so that machines whose own clocks are wrong still agree about
a lease. Between two readings of the store's clock it counts with the machine's monotonic clock, so that a step of
the system's clock (NTP, a suspended laptop's catch-up) moves no lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from taskharbor.model.times import from_ms, to_ms

MAX_READINGS = 5
GOOD_READING_S = 1.0  # a reading of the store's clock that took longer is repeated
READING_VALID_S = 60.0
CLOCK_METHODS = ("now", "monotonic", "sleep")
STEP_S = 1.0  # the machine's two clocks drift further apart only if it has slept or its clock was set


@runtime_checkable
class Clock(Protocol):
    """What core needs of time. `taskharbor.testing.ManualClock` is one that moves only when a test moves it."""

    def now(self) -> datetime:
        """The present, aware, UTC, in whole milliseconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""


@runtime_checkable
class FollowingClock(Clock, Protocol):
    """A clock that takes over the store's time."""

    def stale(self) -> bool:
        """Whether it is time to read the store's clock again."""

    async def follow(self, server_time: Callable[[], Awaitable[datetime]]) -> timedelta:
        """Read the store's clock, take it over, and return by how much this one was moved."""


async def follow(clock: Clock, server_time: Callable[[], Awaitable[datetime]]) -> None:
    """Take over the store's time, if the clock is one that follows."""
    if isinstance(clock, FollowingClock):
        await clock.follow(server_time)


def is_stale(clock: Clock) -> bool:
    """Whether a clock that follows the store's has to read it again."""
    return isinstance(clock, FollowingClock) and clock.stale()


class StoreClock:
    """The present as the store sees it; as this machine sees it until `follow` was called once."""

    def __init__(self) -> None:
        self._base_ms = time.time() * 1000 - time.monotonic() * 1000
        self._last = (0, from_ms(0))
        self.monotonic = time.monotonic  # itself, not a method around it: it is read twice for each job
        self._read_at = self._apart = float(
            "-inf"
        )  # when the store's clock was last read, and how far the machine's were apart

    def now(self) -> datetime:
        ms = int(self._base_ms + time.monotonic() * 1000)
        last = self._last
        if last[0] == ms:
            return last[1]
        now = from_ms(ms)
        self._last = (ms, now)
        return now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def stale(self) -> bool:
        """Whether it is time to read the store's clock again: a minute has passed, or the machine was asleep.

        A sleeping machine's monotonic clock stands still, and so does this one: only the difference to the wall
        clock shows it.
        """
        up = time.monotonic()
        return up - self._read_at >= READING_VALID_S or abs(time.time() - up - self._apart) > STEP_S

    async def follow(self, server_time: Callable[[], Awaitable[datetime]]) -> timedelta:
        """Read the store's clock, take it over, and return by how much this one was moved.

        The store read its clock somewhere between our request and its reply; assuming the middle halves the error. A
        reading that took more than a second is repeated, because its error could be longer than a lease. The quickest
        one counts, and only for a difference that is larger than its error.
        """
        self._read_at, self._apart = time.monotonic(), time.time() - time.monotonic()
        took, base_ms = await self._read(server_time)
        for _ in range(MAX_READINGS - 1):
            if took <= GOOD_READING_S:
                break
            took, base_ms = min((took, base_ms), await self._read(server_time))
        moved = base_ms - self._base_ms
        if abs(moved) > took * 500:
            self._base_ms = base_ms
        else:
            moved = 0
        return timedelta(milliseconds=moved)

    async def _read(self, server_time: Callable[[], Awaitable[datetime]]) -> tuple[float, float]:
        """How many seconds a reading took, and the store's time in ms where our monotonic clock is 0."""
        sent = time.monotonic()
        store_time = await server_time()
        received = time.monotonic()
        return received - sent, to_ms(store_time) - (sent + received) * 500
