"""The agenda: when jobs that this worker has put off (retried, snoozed) are due again.

A store gives no hint when a moment comes, so an idle worker asks every poll interval. What it has put off itself it
knows, and need not be late for. It is a help, nothing more: what does not fit is found by the next poll.
"""

from __future__ import annotations

import heapq
from datetime import datetime

LONGEST = 1000  # moments that are remembered


class DueTimes:
    """Moments, the next one first."""

    def __init__(self) -> None:
        self._moments: list[datetime] = []

    def note(self, moment: datetime) -> bool:
        """Remember a moment; True: it is the next one now."""
        if len(self._moments) >= LONGEST:
            return False
        heapq.heappush(self._moments, moment)
        return self._moments[0] is moment

    def passed(self, now: datetime) -> None:
        """Forget what is due: it is being looked for."""
        while self._moments and self._moments[0] <= now:
            heapq.heappop(self._moments)

    def seconds(self, now: datetime) -> float | None:
        """How long until the next one; None without one."""
        return (self._moments[0] - now).total_seconds() if self._moments else None
