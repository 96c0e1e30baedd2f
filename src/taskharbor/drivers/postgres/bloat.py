"""Where a reserve starts to scan its index while an old transaction keeps dead entries in it.

Claimed jobs leave dead entries at the head of the index. Vacuum may not remove them as long as any older transaction is
open, so a scan from the head reads more of them with every job. A reserve that read many dead entries therefore returns
where it came to (an opaque text), and the next ones start there. A job that joined the queue before that place (a
higher priority, a worker with a slower clock) is found by a scan from the head, every 1 to 10 s: ten times what the
last such scan took. If nothing is found from the place on, the reserve scans from the head at once.
"""

from __future__ import annotations

from typing import Any

from taskharbor.drivers.postgres.records import SCAN_FROM

MIN_INTERVAL_S = 1.0  # between two scans from the head
MAX_INTERVAL_S = 10.0


class ScanStart:
    """Where the reserves of one driver start."""

    def __init__(self) -> None:
        self._place: str | None = None
        self._until = 0.0  # when the next scan from the head is due

    def place(self, now: float) -> str | None:
        """Where to start at `now` (seconds of a monotonic clock); None: at the head."""
        if self._place is not None and now >= self._until:
            self._place = None
        return self._place

    def forget(self) -> None:
        """Start at the head next time."""
        self._place = None

    def learn(self, rows: list[Any], started_at: str | None, began: float, now: float) -> None:
        """Take the place out of the rows of a reserve, if they end with one."""
        if rows and rows[-1][SCAN_FROM] is not None:
            self._place = rows.pop()[SCAN_FROM]
            if started_at is None:
                self._until = now + min(max(MIN_INTERVAL_S, 10 * (now - began)), MAX_INTERVAL_S)
        elif started_at is None:
            self._place = None
