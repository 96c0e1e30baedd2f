"""Ids of many sources in one order, a few at a time: what the listings of jobs and of flows walk along.

A source is a queue whose ids a script returns in their order, or a list that is known already. Of each source the next
ids are fetched before the walk may pass them, so a walk over a thousand queues fetches only a few of each. How many ids
one walk fetches is bounded: then it stops, and the next call goes on behind the last id.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from taskharbor.model.safe_repr import shown

FIRST_SHARE = 2  # the first ids of all sources take at most one part in this many of what a walk may fetch


class JobPlace(NamedTuple):
    """An id, as text and as it is stored, and the queue it was found in."""

    text: str
    data: bytes
    queue: str

    def __repr__(self) -> str:
        return shown(self, "queue")


class WalkSource:
    """The ids of one queue: those that were fetched, the next one last, and where to go on (None: that was all)."""

    __slots__ = ("after", "ids", "queue")

    def __init__(self, queue: str, after: bytes | None, ids: Sequence[JobPlace] = ()) -> None:
        self.queue = queue
        self.after = after
        self.ids = list(reversed(ids))


Fetch = Callable[[Sequence[WalkSource], int], Awaitable[None]]
"""Fetch ids for each of these sources, at most as many as the number says."""


class _Down(str):
    """A text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class IdWalk:
    """One walk. `newest`: the last id first; `most`: ids that it may fetch; `count`: those that are wanted at first;
    `page`: those of one source that are fetched at once."""

    def __init__(
        self, sources: Iterable[WalkSource], fetch: Fetch, *, newest: bool, most: int, count: int, page: int
    ) -> None:
        self._fetch = fetch
        self._newest = newest
        self._heads: list[tuple[str, int, WalkSource]] = []
        self._empty: list[WalkSource] = []  # sources of which the next id is unknown
        self._number = 0
        self._page = page
        for source in sources:
            self.add(source)
        few = len(self._empty) * FIRST_SHARE
        self._left = max(most, few)
        self._next = max(1, min(count, page, self._left // few if few else page))

    def add(self, source: WalkSource) -> None:
        """One more source, whose ids lie behind what was taken."""
        if source.ids:
            text: str = _Down(source.ids[-1].text) if self._newest else source.ids[-1].text
            self._number += 1
            heapq.heappush(self._heads, (text, self._number, source))
        elif source.after is not None:
            self._empty.append(source)

    @property
    def is_over(self) -> bool:
        return not self._heads and not self._empty

    async def take(self, count: int) -> list[JobPlace]:
        """The next ids, fewer than `count` only if there are no more or the walk may fetch no more."""
        taken: list[JobPlace] = []
        while len(taken) < count and await self._fill():
            _, _, source = heapq.heappop(self._heads)
            taken.append(source.ids.pop())
            self.add(source)
        return taken

    async def _fill(self) -> bool:
        """Fetch where the next id is unknown; returns whether there is a next id."""
        while self._empty:
            if self._left < len(self._empty):
                return False
            some, self._empty = self._empty, []
            count = min(self._next, self._left // len(some))
            await self._fetch(some, count)
            self._left -= max(1, sum(len(source.ids) for source in some))
            self._next = self._page
            for source in some:
                self.add(source)
        return bool(self._heads)


def found_ids(queue: str, ids: Iterable[bytes]) -> list[JobPlace]:
    """Ids of a queue; those that are not UTF-8 are shown with replacement characters."""
    return [JobPlace(id.decode(errors="replace"), id, queue) for id in ids]


def in_order(ids: Iterable[JobPlace], after: str | None, *, newest: bool) -> list[JobPlace]:
    """Those that lie behind `after`, in the order of a walk."""
    behind = [one for one in ids if after is None or (one.text < after if newest else one.text > after)]
    return sorted(behind, key=lambda one: one.text, reverse=newest)
