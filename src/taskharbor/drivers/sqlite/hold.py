"""Outcomes that wait a moment, so that those of several rounds of a worker share one fsync.

A worker with sixteen slots asks for sixteen jobs while the outcomes of the last sixteen are to be written. A reserve
needs no fsync, outcomes do: written together, every sixteen jobs cost one. So outcomes are kept back while reserves go
on finding work, for no longer than the last fsync took; nobody but the worker's settler waits for them. Where an
fsync costs next to nothing, nothing is kept back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taskharbor.drivers.sqlite.lane import Call

WORTH = 0.0003  # seconds: an fsync that takes less is not worth a wait
LONGEST = 0.01  # seconds for which anything is kept back
GAP = 0.001  # seconds without a call after which no further reserve is expected


class Hold:
    """What is kept back, and until when."""

    def __init__(self) -> None:
        self._kept: list[Call] = []
        self._until = 0.0
        self._pause = 0.0

    def measure(self, commit: Callable[[], object]) -> None:
        """Commit with an fsync."""
        began = time.monotonic()
        commit()
        self.took(time.monotonic() - began)

    def took(self, seconds: float) -> None:
        """A commit with an fsync took so long."""
        self._pause = min(seconds, LONGEST) if seconds >= WORTH else 0.0

    def let_go(self) -> None:
        """No more work was found: what is kept back is written now."""
        self._until = 0.0

    def left(self) -> float | None:
        """Seconds for which calls may still come before what is kept back is written; None: nothing is."""
        return min(max(self._until - time.monotonic(), 0.0), GAP) if self._kept else None

    def sort(self, calls: list[Call], last: bool = False) -> list[Call]:
        """Which calls are to be worked off now; `last`: no more will come."""
        if self._pause and calls and not last and all(call.light or call.patient for call in calls):
            now = time.monotonic()
            if not self._kept:
                self._until = now + self._pause
            light = [call for call in calls if call.light]
            if light and now < self._until:
                self._kept += [call for call in calls if call.patient]
                return light
        kept, self._kept = self._kept, []
        return kept + calls
