"""When the jobs that this worker has put off (retried, snoozed) are due again.

A store sends no hint when a job becomes due, so an idle worker finds it at the next poll. It knows the due times of
jobs that it has put off itself, and polls then. This is an optimisation only: what is not noted here is found by
the next poll.
"""

from __future__ import annotations

import heapq
from datetime import datetime

MAX_TIMES = 1000


class DueTimes:
    """Times, the next one first."""

    def __init__(self) -> None:
        self._moments: list[datetime] = []

    def note(self, moment: datetime) -> bool:
        """Remember a time; return whether it is the next one now."""
        if len(self._moments) >= MAX_TIMES:
            return False
        heapq.heappush(self._moments, moment)
        return self._moments[0] is moment

    def passed(self, now: datetime) -> None:
        """Forget the times that have come: a reserve is about to look for their jobs."""
        while self._moments and self._moments[0] <= now:
            heapq.heappop(self._moments)

    def seconds(self, now: datetime) -> float | None:
        """Seconds until the next time; None without one."""
        return (self._moments[0] - now).total_seconds() if self._moments else None
