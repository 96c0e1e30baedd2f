"""A calendar: jobs by a moment, divided by the present into those ahead and those behind."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from taskharbor.drivers.memory.records import Entry

_SLACK = 64  # below this many stale moments rebuilding costs more than it saves


class Calendar:
    """Entries by a moment, divided by `now` into those ahead and those behind. `now` may be moved either way.

    One bucket holds all entries of a moment. The heaps hold moments, not entries: of a hundred thousand leases a
    second, which end in the same few thousand milliseconds, each would leave a stale item.
    """

    __slots__ = ("_next", "_past", "ahead", "behind", "now")

    def __init__(self) -> None:
        self.now = 0
        self.ahead: dict[int, dict[Entry, None]] = {}
        self.behind: dict[int, dict[Entry, None]] = {}
        self._next: list[int] = []  # heap of the moments ahead, and of some that are gone
        self._past: list[int] = []  # the same of those behind, negated: the latest first

    def bucket(self, moment: int) -> dict[Entry, None]:
        """The entries of a moment. A caller that adds one sets its `moment`."""
        side = self.ahead if moment > self.now else self.behind
        found = side.get(moment)
        if found is None:
            found = side[moment] = {}
            self._note(moment)
        return found

    def add(self, entry: Entry, moment: int) -> None:
        entry.moment = moment
        self.bucket(moment)[entry] = None

    def remove(self, entry: Entry) -> None:
        moment = entry.moment
        if moment is None:
            return
        entry.moment = None
        side = self.ahead if moment > self.now else self.behind
        bucket = side[moment]
        del bucket[entry]
        if not bucket:
            del side[moment]

    def next(self) -> int | None:
        """The earliest moment ahead that has an entry."""
        while self._next and self._next[0] not in self.ahead:
            heappop(self._next)
        return self._next[0] if self._next else None

    def size(self) -> int:
        """How many entries it has."""
        return sum(map(len, self.ahead.values())) + sum(map(len, self.behind.values()))

    def entries(self) -> Iterator[Entry]:
        """All entries, on both sides of the present."""
        for side in (self.ahead, self.behind):
            for bucket in side.values():
                yield from bucket

    def forward(self, now: int) -> Iterator[Entry]:
        """Move on to a later moment; yields the entries that are behind it now."""
        self.now = now
        while self._next and self._next[0] <= now:
            moment = heappop(self._next)
            bucket = self.ahead.pop(moment, None)
            if bucket is not None:
                self.behind[moment] = bucket
                self._note(moment)
                yield from bucket

    def back(self, now: int) -> Iterator[Entry]:
        """Move back to an earlier moment; yields the entries that are ahead of it again."""
        self.now = now
        while self._past and -self._past[0] > now:
            moment = -heappop(self._past)
            bucket = self.behind.pop(moment, None)
            if bucket is not None:
                self.ahead[moment] = bucket
                self._note(moment)
                yield from bucket

    def _note(self, moment: int) -> None:
        if moment > self.now:
            heappush(self._next, moment)
            if len(self._next) > 2 * len(self.ahead) + _SLACK:
                self._next = sorted(self.ahead)
        else:
            heappush(self._past, -moment)
            if len(self._past) > 2 * len(self.behind) + _SLACK:
                self._past = sorted([-moment for moment in self.behind])
