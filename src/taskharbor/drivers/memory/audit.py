"""The audit: entries by id, and their places in the order of time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import MAX_SCANNED_AUDIT
from taskharbor.drivers.cursor import encode_place
from taskharbor.drivers.queries import AuditQuery
from taskharbor.model.audit import AUDIT_KEPT_FOR, AuditPage, StoredAudit

MAX_FORGOTTEN_ENTRIES = 1_000
"""In one call: after a long silence the rest goes with the calls that follow."""


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
