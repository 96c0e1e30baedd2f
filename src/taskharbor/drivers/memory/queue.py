"""One queue: its jobs that are due, scheduled or under a lease, each where `reserve` finds it.

A queue stands at a moment, and `move` brings it to another. There each of its jobs is

    due         in the line of its group, or of the jobs without one
    ahead       scheduled, or under a lease: it becomes due at a moment that lies ahead
    behind      due since a moment that the queue has passed: ahead again if the queue moves back

Workers' clocks differ, so `now` may go back between two calls. No job may start early then, and a lease that is valid
again at the earlier moment is valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from taskharbor.drivers.memory.records import Entry
from taskharbor.model.times import to_us

Place: TypeAlias = tuple[Any, ...]

_SLACK = 64  # below this many items of entries that are gone, a new heap costs more than it saves


class Line:
    """Entries in order, from which any can be removed.

    `places` says which entries there are, and where. The heap finds the first of them; an item of an entry that is
    gone, or has another place now, is skipped.
    """

    def __init__(self) -> None:
        self.places: dict[Entry, Place] = {}
        self._heap: list[tuple[Place, Entry]] = []

    def __len__(self) -> int:
        return len(self.places)

    def put(self, entry: Entry, *place: Any) -> None:
        """Add an entry, or give it another place. No two entries have the same."""
        self.places[entry] = place
        heappush(self._heap, (place, entry))

    def remove(self, entry: Entry) -> None:
        """Remove an entry, if it is here."""
        if entry not in self.places:
            return
        del self.places[entry]
        if len(self._heap) > 2 * len(self.places) + _SLACK:
            self._heap = [(place, entry) for entry, place in self.places.items()]
            heapify(self._heap)

    def first(self) -> tuple[Place, Entry] | None:
        """The first entry, which stays, behind its place."""
        heap = self._heap
        while heap and self.places.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


class Group:
    """The due members of a group, and those that are inflight."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.due = Line()
        self.inflight: set[Entry] = set()

    @property
    def capacity(self) -> int:
        """How many more members may be inflight."""
        return self.limit - len(self.inflight)


class JobQueue:
    """The jobs of one queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[Entry, None] = {}  # all of them in the order of enqueue, also those that have ended
        self.keys: dict[str, str] = {}  # idempotency key → id
        self.paused = False
        self.arrived = 0  # the number of the last event after which a reserve may find more, or sooner, than before
        self.served = 0  # the number of its last turn among the queues
        self.now = 0  # the moment at which it stands
        self.ahead, self.behind = Line(), Line()
        self.ungrouped = Line()
        self.groups: dict[str, Group] = {}  # those with a member that is due or inflight
        self.limits: dict[str, int] = {}  # what was set for a group stays with its name
        self.turns: OrderedDict[str, None] = OrderedDict()  # the groups with a due member and capacity, the next first
        self.groups_next = True  # whose turn it is: the groups' or the ungrouped jobs'

    def lines(self) -> Iterator[Line]:
        """The lines of due jobs."""
        yield self.ungrouped
        for group in self.groups.values():
            yield group.due

    def set_limit(self, name: str, limit: int) -> None:
        """Set the limit of a group. The first one counts."""
        if name not in self.limits:
            self.limits[name] = limit
            if name in self.groups:
                self.groups[name].limit = limit
                self._consider(name)

    def move(self, now: datetime) -> None:
        """Stand at this moment."""
        self.now = to_us(now)
        while (first := self.ahead.first()) is not None and first[0][0] <= self.now:
            self.put(first[1])
        while (first := self.behind.first()) is not None and -first[0][0] > self.now:
            self.put(first[1])

    def put(self, entry: Entry) -> None:
        """Put a job that is ready, scheduled or leased where it belongs now, wherever it was."""
        self.leave(entry)
        if entry.moment is not None:
            moment = to_us(entry.moment)
            if moment > self.now:
                self.ahead.put(entry, moment, entry.arrival)
                if entry.lease is not None:
                    self._hold(entry)
                return
            self.behind.put(entry, -moment, entry.arrival)
        self.line_up(entry)

    def line_up(self, entry: Entry) -> None:
        """The job is due. Priority orders nothing inside a group."""
        name = entry.record.group
        if name is None:
            self.ungrouped.put(entry, -entry.record.priority, entry.waits_since, entry.arrival)
        else:
            self._group(name).due.put(entry, entry.waits_since, entry.arrival)
            self._consider(name)

    def leave(self, entry: Entry) -> None:
        """Take a job out of whatever it is in. That frees the capacity of its group which its lease took."""
        self.ahead.remove(entry)
        self.behind.remove(entry)
        name = entry.record.group
        if name is None:
            self.ungrouped.remove(entry)
        elif name in self.groups:
            self.groups[name].due.remove(entry)
            self.groups[name].inflight.discard(entry)
            self._consider(name)

    def peek(self) -> Entry | None:
        """The due job whose turn it is, which stays: grouped and ungrouped ones take turns, and so do the groups."""
        if self.turns and (self.groups_next or not self.ungrouped):
            first = self.groups[next(iter(self.turns))].due.first()
        else:
            first = self.ungrouped.first()
        return None if first is None else first[1]

    def take(self, entry: Entry) -> None:
        """Take out the job whose turn it is. Until it is put back under its lease, it counts in its group."""
        name = entry.record.group
        self.leave(entry)
        self.groups_next = name is None
        if name is not None:
            self.turns.pop(name, None)  # the other groups come first
            self._hold(entry)

    def _hold(self, entry: Entry) -> None:
        name = entry.record.group
        if name is not None:
            self._group(name).inflight.add(entry)
            self._consider(name)

    def _group(self, name: str) -> Group:
        if name not in self.groups:
            self.groups[name] = Group(self.limits.get(name, 1))
        return self.groups[name]

    def _consider(self, name: str) -> None:
        """Give a group a turn, or none; forget one without members that are due or inflight."""
        group = self.groups[name]
        if group.due and group.capacity > 0:
            self.turns.setdefault(name)
        else:
            self.turns.pop(name, None)
        if not group.due and not group.inflight:
            del self.groups[name]
