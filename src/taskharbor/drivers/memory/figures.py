"""Figures: what happened in which minute, added up by queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from heapq import heappop, heappush

from taskharbor.drivers.base import FIGURES_KEPT_FOR
from taskharbor.model.job import Figures

MAX_FORGOTTEN_ROWS = 1_000
"""In one call: after a long silence the rest goes with the calls that follow."""


class StoredFigures:
    """Numbers by minute, queue and name."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, dict[str, dict[str, int]]] = {}
        self._oldest: list[datetime] = []  # a heap of the minutes

    def add(self, rows: Sequence[Figures], now: datetime) -> None:
        """Add to what is there, and forget what is too old."""
        for row in rows:
            queues = self._minutes.get(row.minute)
            if queues is None:
                queues = self._minutes[row.minute] = {}
                heappush(self._oldest, row.minute)
            counts = queues.setdefault(row.queue, {})
            for name, number in row.counts.items():
                counts[name] = counts.get(name, 0) + number
        forgotten = 0
        while self._oldest and self._oldest[0] < now - FIGURES_KEPT_FOR and forgotten < MAX_FORGOTTEN_ROWS:
            forgotten += len(self._minutes.pop(heappop(self._oldest)))

    def read(self, since: datetime, until: datetime, queue: str | None) -> list[Figures]:
        """What is there of these minutes, without zeros."""
        rows = [
            Figures(minute, name, {what: number for what, number in counts.items() if number})
            for minute in sorted(minute for minute in self._minutes if since <= minute < until)
            for name, counts in sorted(self._minutes[minute].items())
            if queue in (None, name)
        ]
        return [row for row in rows if row.counts]
