"""A clock for tests: it stands still until it is moved, and wakes what sleeps on it."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

from taskharbor.model.times import Duration, duration, moment, truncate

START = datetime(2030, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)


class ManualClock:
    """Time under the test's control, for any number of threads and event loops. It begins at `start`, 2030 by default.

    >>> clock = ManualClock()
    >>> clock.advance(90)
    >>> clock.now().isoformat()
    '2030-01-01T00:01:30+00:00'
    """

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._exact = moment(start, "start")
        self._now = truncate(self._exact)
        self._elapsed = timedelta(0)  # exact: ten times a tenth of a second is a second
        self._sleepers: dict[asyncio.Event, tuple[timedelta, asyncio.AbstractEventLoop]] = {}

    def now(self) -> datetime:
        """The present, as last set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds moved forward so far."""
        return self._elapsed.total_seconds()

    @property
    def sleepers(self) -> int:
        """How many sleep on this clock now: what a test waits for before it moves the clock."""
        return len(self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved forward by `seconds`."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        with self._lock:
            try:
                until = self._elapsed + max(timedelta(seconds=seconds), TICK)
            except OverflowError:  # longer than any test
                until = timedelta.max
            self._sleepers[woken] = (until, asyncio.get_running_loop())
        try:
            await woken.wait()
        finally:
            with self._lock:
                self._sleepers.pop(woken, None)

    def advance(self, by: Duration) -> None:
        """Move forward, and wake what sleeps until then, the earliest first."""
        span = duration(by, "advance")
        with self._lock:
            self._set(self._exact + span)
            self._elapsed += span
            due = [(until, loop, woken) for woken, (until, loop) in self._sleepers.items() if until <= self._elapsed]
            for _, _, woken in due:
                del self._sleepers[woken]
        for _, loop, woken in sorted(due, key=lambda one: one[0]):
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:  # its loop was closed, and with it what slept there
                continue

    def step(self, by: Duration) -> None:
        """Set the time of day forward or back without time passing, as a correction of the clock does."""
        with self._lock:
            self._set(self._exact + (by if isinstance(by, timedelta) else timedelta(seconds=by)))

    def _set(self, exact: datetime) -> None:
        self._exact, self._now = exact, truncate(exact)
