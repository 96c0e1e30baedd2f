"""Reserving while somebody's transaction stays open: beginning above what was claimed, with a full look now and then.

What is claimed leaves dead entries at the head of the line, which nobody may clear away as long as the transaction
lasts. A reserve that had to step over many of them answers where it came to (an opaque text); the next ones begin
there. What joined the line below (a higher priority, a worker with a slower clock) is found by the full look, which
comes every second, or every ten times as long as the last one took. Nothing found above: a full look at once.
"""

from __future__ import annotations

import asyncio
from typing import Any

EVERY = 1.0  # seconds
SELDOM = 10.0


class ScanStart:
    """Where the reserves of one driver begin."""

    def __init__(self) -> None:
        self._floors: str | None = None
        self._until = 0.0

    def floors(self) -> str | None:
        """Where to begin now; None: at the head."""
        if self._floors is not None and asyncio.get_running_loop().time() >= self._until:
            self._floors = None
        return self._floors

    def heard(self, rows: list[Any], floors: str | None, began: float) -> None:
        """Take the text out of an answer, if it has one."""
        if rows and rows[-1][0] is None:
            self._floors = rows.pop()[-1]
            if floors is None:
                now = asyncio.get_running_loop().time()
                self._until = now + min(max(EVERY, 10 * (now - began)), SELDOM)
        elif floors is None:
            self._floors = None
