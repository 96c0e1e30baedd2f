"""Lines and calendars: the ordered structures, none of whose operations looks at more than it has to.

Removing from the middle is lazy: an item stands for an entry only while its ticket is that entry's `place`. Structures
are rebuilt when more than half of them is stale, so they grow with what they hold and with nothing else.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from taskharbor.drivers.memory.records import Entry

Item: TypeAlias = tuple[Any, ...]
"""What orders an entry, then a ticket, then the entry itself. No two are equal before that: tickets are unique."""

_next_ticket = count(1).__next__  # for all lines together: an entry moves from one to another and leaves stale items

_SLACK = 64  # below this many stale items rebuilding costs more than it saves


class EntryHeap:
    """Entries in order, for lines that are short: a group's, mostly."""

    __slots__ = ("heap", "stale")

    def __init__(self) -> None:
        self.heap: list[Item] = []
        self.stale = 0

    def push(self, order: tuple[int, ...], entry: Entry) -> None:
        """Take an entry in at its place in the order."""
        entry.place = ticket = _next_ticket()
        heappush(self.heap, (*order, ticket, entry))

    def peek(self) -> Entry | None:
        """The first entry, which stays."""
        heap = self.heap
        while heap:
            entry: Entry = heap[0][-1]
            if entry.place == heap[0][-2]:
                return entry
            heappop(heap)
            self.stale -= 1
        return None

    def pop(self) -> Entry | None:
        """The first entry, which leaves."""
        heap = self.heap
        while heap:
            item = heappop(heap)
            entry: Entry = item[-1]
            if entry.place == item[-2]:
                entry.place = None
                return entry
            self.stale -= 1
        return None

    def discard(self, entry: Entry) -> None:
        """Take an entry out, wherever it stands."""
        entry.place = None
        self.stale += 1
        if self.stale > _SLACK and self.stale * 2 > self.size():
            self.rebuild()

    def size(self) -> int:
        """How many items there are, the stale ones included."""
        return len(self.heap)

    def rebuild(self) -> None:
        self.heap = [item for item in self.heap if item[-1].place == item[-2]]
        heapify(self.heap)
        self.stale = 0


class OrderedEntries(EntryHeap):
    """Entries in order, for lines that are long: what comes in order, as nearly all does, never sees the heap.

    `run` is sorted because only greater items are appended to it; the rest goes to the heap. So a line of one
    priority costs the same however long it is.
    """

    __slots__ = ("run",)

    def __init__(self) -> None:
        super().__init__()
        self.run: deque[Item] = deque()

    def push(self, order: tuple[int, ...], entry: Entry) -> None:
        entry.place = ticket = _next_ticket()
        item = (*order, ticket, entry)
        run = self.run
        if not run or item > run[-1]:
            run.append(item)
        else:
            heappush(self.heap, item)

    def peek(self) -> Entry | None:
        run, heap = self.run, self.heap
        while run or heap:
            from_heap = not run or (heap and heap[0] < run[0])
            item = heap[0] if from_heap else run[0]
            entry: Entry = item[-1]
            if entry.place == item[-2]:
                return entry
            if from_heap:
                heappop(heap)
            else:
                run.popleft()
            self.stale -= 1
        return None

    def pop(self) -> Entry | None:
        run, heap = self.run, self.heap
        while True:
            if run:
                item = heappop(heap) if heap and heap[0] < run[0] else run.popleft()
            elif heap:
                item = heappop(heap)
            else:
                return None
            entry: Entry = item[-1]
            if entry.place == item[-2]:
                entry.place = None
                return entry
            self.stale -= 1

    def pop_many(self, limit: int) -> list[Entry]:
        """Up to so many entries, which leave: as many calls of `pop`, at half their price while the heap is empty."""
        popped: list[Entry] = []
        run, heap = self.run, self.heap
        if not heap and not self.stale:  # every item stands for an entry, and they are in order
            pop = run.popleft
            for _ in range(min(limit, len(run))):
                entry = pop()[-1]
                entry.place = None
                popped.append(entry)
            return popped
        while len(popped) < limit:
            if heap or not run:
                entry = self.pop()
                if entry is None:
                    break
            else:
                item = run.popleft()
                entry = item[-1]
                if entry.place != item[-2]:
                    self.stale -= 1
                    continue
                entry.place = None
            popped.append(entry)
        return popped

    def append(self, time: int, entry: Entry) -> None:
        """`push` for a line that is ordered by time alone, to which nearly every entry comes as the last."""
        run = self.run
        if run and time < run[-1][0]:
            self.push((time,), entry)
        else:
            entry.place = ticket = _next_ticket()
            run.append((time, ticket, entry))

    def size(self) -> int:
        return len(self.run) + len(self.heap)

    def rebuild(self) -> None:
        super().rebuild()
        self.run = deque(item for item in self.run if item[-1].place == item[-2])
