"""Entries in order: heaps from which an entry can be removed wherever it is.

Removing is lazy: the item stays in the heap. It counts only while its ticket is the `place` of its entry; else it is
stale. A heap is rebuilt when more than half of it is stale, so it grows with the entries in it and with nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Any, TypeAlias

from taskharbor.drivers.memory.records import Entry

Item: TypeAlias = tuple[Any, ...]
"""What orders an entry, then a ticket, then the entry itself. No two are equal before that: tickets are unique."""

_next_ticket = count(1).__next__  # for all heaps together: an entry moves from one to another and leaves stale items

_SLACK = 64  # below this many stale items rebuilding costs more than it saves


class EntryHeap:
    """Few entries in order: those of a group, mostly."""

    __slots__ = ("heap", "stale")

    def __init__(self) -> None:
        self.heap: list[Item] = []
        self.stale = 0

    def push(self, order: tuple[int, ...], entry: Entry) -> None:
        """Add an entry at its place in the order."""
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
        """Remove an entry, wherever it is."""
        entry.place = None
        self.stale += 1
        if self.stale > _SLACK and self.stale * 2 > self.size():
            self.rebuild()

    def items(self) -> Iterator[Item]:
        """All that are not stale, in no order."""
        return (item for item in self.heap if item[-1].place == item[-2])

    def size(self) -> int:
        """The number of items, the stale ones included."""
        return len(self.heap)

    def rebuild(self) -> None:
        self.heap = [item for item in self.heap if item[-1].place == item[-2]]
        heapify(self.heap)
        self.stale = 0


class OrderedEntries(EntryHeap):
    """Many entries in order. What is added in order, as nearly all is, never reaches the heap.

    `in_order` is sorted because only greater items are appended to it; the rest goes to the heap. So jobs of one
    priority cost the same however many there are.
    """

    __slots__ = ("in_order",)

    def __init__(self) -> None:
        super().__init__()
        self.in_order: deque[Item] = deque()

    def push(self, order: tuple[int, ...], entry: Entry) -> None:
        entry.place = ticket = _next_ticket()
        item = (*order, ticket, entry)
        in_order = self.in_order
        if not in_order or item > in_order[-1]:
            in_order.append(item)
        else:
            heappush(self.heap, item)

    def peek(self) -> Entry | None:
        in_order, heap = self.in_order, self.heap
        while in_order or heap:
            from_heap = not in_order or (heap and heap[0] < in_order[0])
            item = heap[0] if from_heap else in_order[0]
            entry: Entry = item[-1]
            if entry.place == item[-2]:
                return entry
            if from_heap:
                heappop(heap)
            else:
                in_order.popleft()
            self.stale -= 1
        return None

    def pop(self) -> Entry | None:
        in_order, heap = self.in_order, self.heap
        while True:
            if in_order:
                item = heappop(heap) if heap and heap[0] < in_order[0] else in_order.popleft()
            elif heap:
                item = heappop(heap)
            else:
                return None
            entry: Entry = item[-1]
            if entry.place == item[-2]:
                entry.place = None
                return entry
            self.stale -= 1

    def first(self) -> int | None:
        """What orders the first entry: the number that it was appended with."""
        if self.peek() is None:
            return None
        in_order, heap = self.in_order, self.heap
        order: int = heap[0][0] if not in_order or (heap and heap[0] < in_order[0]) else in_order[0][0]
        return order

    def pop_many(self, limit: int) -> list[Entry]:
        """Up to `limit` entries, which leave. Costs half as much as calls of `pop` while the heap is empty."""
        popped: list[Entry] = []
        in_order, heap = self.in_order, self.heap
        if not heap and not self.stale:  # no item is stale, and all are in order
            pop = in_order.popleft
            for _ in range(min(limit, len(in_order))):
                entry = pop()[-1]
                entry.place = None
                popped.append(entry)
            return popped
        while len(popped) < limit:
            if heap or not in_order:
                entry = self.pop()
                if entry is None:
                    break
            else:
                item = in_order.popleft()
                entry = item[-1]
                if entry.place != item[-2]:
                    self.stale -= 1
                    continue
                entry.place = None
            popped.append(entry)
        return popped

    def append(self, time: int, entry: Entry) -> None:
        """`push` by time alone, for entries of which nearly every one is the last."""
        in_order = self.in_order
        if in_order and time < in_order[-1][0]:
            self.push((time,), entry)
        else:
            entry.place = ticket = _next_ticket()
            in_order.append((time, ticket, entry))

    def items(self) -> Iterator[Item]:
        return (item for item in chain(self.in_order, self.heap) if item[-1].place == item[-2])

    def size(self) -> int:
        return len(self.in_order) + len(self.heap)

    def rebuild(self) -> None:
        super().rebuild()
        self.in_order = deque(item for item in self.in_order if item[-1].place == item[-2])
