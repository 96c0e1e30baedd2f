"""The clock: the only place where core reads the time.

`StoreClock`, the default, follows the store's clock, so that machines whose own clocks are wrong still agree about
a lease. Between two looks at the store it counts with the machine's monotonic clock, so that a step of the
system's clock (NTP, a suspended laptop's catch-up) moves no lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from taskharbor.model.times import from_ms, to_ms

LOOKS = 5
GOOD_LOOK = 1.0  # seconds
LOOK_EVERY = 60.0  # seconds for which a look is good
CLOCK_METHODS = ("now", "monotonic", "sleep")
STEP = 1.0  # seconds by which the machine's two clocks may drift apart before it must have slept or been set


@runtime_checkable
class Clock(Protocol):
    """What core needs of time. `taskharbor.testing.ManualClock` is one that moves only when told to."""

    def now(self) -> datetime:
        """The present, aware, UTC, in whole milliseconds."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds of this clock."""


class StoreClock:
    """The present as the store sees it; as this machine sees it until `follow` was called once."""

    def __init__(self) -> None:
        self._base_ms = time.time() * 1000 - time.monotonic() * 1000
        self._last = (0, from_ms(0))
        self.monotonic = time.monotonic  # itself, not a method around it: it is asked twice for each job
        self._looked = self._apart = float("-inf")  # when the store was last looked at, and the clocks' difference then

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
        """Whether it is time to look at the store again: a minute has passed, or the machine was asleep meanwhile.

        A sleeping machine's monotonic clock stands still, and so does this one: only the difference to the wall
        clock shows it.
        """
        up = time.monotonic()
        return up - self._looked >= LOOK_EVERY or abs(time.time() - up - self._apart) > STEP

    async def follow(self, server_time: Callable[[], Awaitable[datetime]]) -> timedelta:
        """Look at the store's clock, take it over, and answer by how much this one was moved.

        The answer was true somewhere between asking and hearing; the middle halves the error. A look that took
        more than a second is repeated, because its error could be longer than a lease; the quickest one counts, and
        only for a difference that is larger than its error.
        """
        self._looked, self._apart = time.monotonic(), time.time() - time.monotonic()
        took, base_ms = await self._look(server_time)
        for _ in range(LOOKS - 1):
            if took <= GOOD_LOOK:
                break
            took, base_ms = min((took, base_ms), await self._look(server_time))
        moved = base_ms - self._base_ms
        if abs(moved) > took * 500:
            self._base_ms = base_ms
        else:
            moved = 0
        return timedelta(milliseconds=moved)

    async def _look(self, server_time: Callable[[], Awaitable[datetime]]) -> tuple[float, float]:
        asked = time.monotonic()
        answer = await server_time()
        heard = time.monotonic()
        return heard - asked, to_ms(answer) - (asked + heard) * 500
