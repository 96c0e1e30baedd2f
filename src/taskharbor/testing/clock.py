"""A clock for tests: it stands still until it is moved, and wakes what sleeps on it."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from taskharbor.model.times import Duration, duration, truncate

START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """Time under the test's control, for any number of threads and event loops.

    >>> clock = ManualClock()
    >>> clock.advance(90)
    >>> clock.now().isoformat()
    '2030-01-01T00:01:30+00:00'
    """

    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._now = truncate(start)
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._count = 0
        self._slept = threading.Condition(self._lock)

    def now(self) -> datetime:
        """The present, as last set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds moved forward so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved forward by so much."""
        woken = asyncio.Event()
        with self._lock:
            if seconds <= 0:
                return
            self._count += 1
            heappush(self._sleepers, (self._elapsed + seconds, self._count, asyncio.get_running_loop(), woken))
            self._slept.notify_all()
        await woken.wait()

    def advance(self, by: Duration) -> None:
        """Move forward, and wake whoever slept until then."""
        span = duration(by, "advance")
        with self._lock:
            self._now = truncate(self._now + span)
            self._elapsed += span.total_seconds()
            due = []
            while self._sleepers and self._sleepers[0][0] <= self._elapsed:
                due.append(heappop(self._sleepers))
        for _, _, loop, woken in due:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

    def step(self, by: timedelta) -> None:
        """Set the time of day forward or back without time passing, as a correction of the clock does."""
        with self._lock:
            self._now = truncate(self._now + by)
