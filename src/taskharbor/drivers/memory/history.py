"""What happened: figures, added up by minute and queue, and the audit, entries by id in the order of time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from datetime import datetime
from heapq import heappop, heappush

from taskharbor.drivers.base import FIGURES_KEPT_FOR, MAX_SCANNED_AUDIT
from taskharbor.drivers.cursor import encode_place
from taskharbor.drivers.queries import AuditQuery
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit
from taskharbor.model.job import Figures

# In one call: after a long silence the rest goes with the calls that follow.
MAX_FORGOTTEN_ROWS = 1_000
MAX_FORGOTTEN_ENTRIES = 1_000


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


class StoredEntries:
    """The entries of the audit. A new one is nearly always the last, so its place is found at the end of the list."""

    def __init__(self) -> None:
        self._entries: dict[str, StoredAudit] = {}
        self._places: list[tuple[datetime, str]] = []  # of all entries, in order

    def put(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        """Store entries, each in place of the one with its id, and forget what is too old."""
        for entry in entries:
            known = self._entries.get(entry.id)
            if known is not None:
                del self._places[bisect_left(self._places, (known.at, known.id))]
            self._entries[entry.id] = entry
            insort(self._places, (entry.at, entry.id))
        old = self._places[: min(self._before(now - AUDIT_KEPT_FOR), MAX_FORGOTTEN_ENTRIES)]
        for _, id in old:
            del self._entries[id]
        del self._places[: len(old)]

    def read(self, wanted: AuditQuery) -> AuditPage:
        """A page of entries, the last one first."""
        first = 0 if wanted.since is None else self._before(wanted.since)
        end = len(self._places) if wanted.until is None else self._before(wanted.until)
        if wanted.after is not None:
            end = min(end, bisect_left(self._places, wanted.after))
        items: list[StoredAudit] = []
        for index in range(end - 1, first - 1, -1):
            if end - 1 - index == MAX_SCANNED_AUDIT:
                return AuditPage(tuple(items), encode_place(*self._places[index + 1]))
            entry = self._entries[self._places[index][1]]
            if wanted.fits(entry):
                if len(items) == wanted.limit:
                    return AuditPage(tuple(items), encode_place(*self._places[index + 1]))
                items.append(entry)
        return AuditPage(tuple(items))

    def _before(self, moment: datetime) -> int:
        """How many entries lie before a moment."""
        return bisect_left(self._places, (moment, ""))
