"""One queue: who may run, who will, who does. It stands at a moment, and `move` brings it to another, either way.

    SCHEDULED ──(run_at behind)──► READY ──take, grant──► INFLIGHT ──(lease behind)──► EXPIRED ──take, grant──► INFLIGHT
              ◄──(ahead again)───                                  ◄──(ahead again)───

Workers' clocks differ, so `now` may go back between two calls: moving back undoes exactly what moving on did, and
so nothing starts early and a lease that holds again is held. Everything else is left to the store.
"""

from __future__ import annotations

from taskharbor.drivers.memory.groups import Groups
from taskharbor.drivers.memory.heaps import Calendar, Line
from taskharbor.drivers.memory.records import (
    EXPIRED,
    IN_LINE,
    INFLIGHT,
    READY,
    SCHEDULED,
    STANDINGS,
    Entry,
    damage_of,
    ticks,
)


class Queue:
    """The lines of one queue, and how many of its jobs stand where."""

    __slots__ = ("arrived", "calendar", "counts", "groups", "groups_next", "keys", "line", "name", "paused", "served")

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = Line()  # what is due and has no group, by priority, time and arrival
        self.groups = Groups()
        self.groups_next = True  # whose turn it is: the groups' or the line's
        self.calendar = Calendar()  # leases by their end; what has a run_at and waits, by that
        self.counts = [0 for _ in STANDINGS]
        self.keys: dict[str, str] = {}  # idempotency key → id
        self.paused = False
        self.arrived = 0  # the number of the last event after which a reserve may find more than before
        self.served = 0  # the number of its last turn among other queues

    def clear(self) -> None:
        """Let go of all entries."""
        self.line, self.groups, self.calendar = Line(), Groups(), Calendar()

    def stand(self, entry: Entry, standing: int) -> None:
        self.counts[entry.standing] -= 1
        self.counts[standing] += 1
        entry.standing = standing

    def empty(self) -> bool:
        return not any(self.counts)

    # Moving in time

    def move(self, now: int) -> None:
        """Stand at this moment: afterwards READY, SCHEDULED, INFLIGHT and EXPIRED are true as they are."""
        calendar = self.calendar
        if now > calendar.now:
            for entry in calendar.forward(now):
                if entry.standing == INFLIGHT:
                    self.expire(entry)
                else:
                    self.stand(entry, READY)
                    self._line_up(entry)
        elif now < calendar.now:
            for entry in calendar.back(now):
                self._step_out(entry)
                if entry.standing == EXPIRED:
                    self.stand(entry, INFLIGHT)
                    if entry.record.group is not None:
                        self.groups.hold(entry.record.group)
                else:
                    self.stand(entry, SCHEDULED)

    def expire(self, entry: Entry) -> None:
        """The lease is over: back into the line at the time it ended, with its old arrival and still with its token."""
        self.stand(entry, EXPIRED)
        assert entry.moment is not None
        entry.time = entry.moment
        if entry.record.group is not None:
            self.groups.free(entry.record.group)
        self._line_up(entry)

    # Coming and going

    def join(self, entry: Entry, now: int, arrival: int) -> None:
        """A job of no standing may run from its `run_at` on: it joins the line, or waits for that moment."""
        entry.arrival = arrival
        run_at = entry.record.run_at
        if run_at is None:
            entry.time = now
        else:
            moment = ticks(run_at)
            entry.time = max(moment, now)
            self.calendar.add(entry, moment)
            if moment > self.calendar.now:
                if moment <= now:
                    self.arrived = arrival
                self.stand(entry, SCHEDULED)
                return
        if entry.time == now:
            self.arrived = arrival
        self.stand(entry, READY)
        self._line_up(entry)

    def leave(self, entry: Entry) -> bool:
        """Take a job out of whatever it stands in; answers whether that freed a slot that another can use."""
        standing = entry.standing
        if entry.moment is not None:
            self.calendar.remove(entry)
        if standing == INFLIGHT:  # first, because it is what a worker's outcomes meet
            entry.lease = None
            group = entry.record.group
            return group is not None and self.groups.free(group)
        if standing in IN_LINE:
            self._step_out(entry)
            entry.lease = None
        return False

    def _line_up(self, entry: Entry) -> None:
        record = entry.record
        if record.group is None:
            self.line.push((-record.priority, entry.time, entry.arrival), entry)
        else:
            self.groups.push(record.group, entry)

    def _step_out(self, entry: Entry) -> None:
        if entry.place is None:  # it was just taken from there
            return
        if entry.record.group is None:
            self.line.discard(entry)
        else:
            self.groups.discard(entry.record.group, entry)

    # Reserving

    def take(self, limit: int, damaged: list[Entry]) -> list[Entry]:
        """Up to `limit` sound jobs, out of the line and with their slots held; grouped and ungrouped ones in turn."""
        taken: list[Entry] = []
        while len(taken) < limit:
            if self.groups_next:
                entry = self._next_grouped(damaged) or self._next_ungrouped(damaged)
            else:
                entry = self._next_ungrouped(damaged) or self._next_grouped(damaged)
            if entry is None:
                break
            taken.append(entry)
            self.groups_next = entry.record.group is None
            if self.groups_next and not self.groups.turns:
                self._take_ungrouped(taken, limit, damaged)
        return taken

    def _take_ungrouped(self, taken: list[Entry], limit: int, damaged: list[Entry]) -> None:
        # No group has anything to give: the whole rest from the line, without asking them again for each job.
        while len(taken) < limit and (popped := self.line.pop_many(limit - len(taken))):
            for entry in popped:
                if entry.tampered and damage_of(entry) is not None:
                    damaged.append(entry)
                else:
                    taken.append(entry)

    def _next_ungrouped(self, damaged: list[Entry]) -> Entry | None:
        while (entry := self.line.pop()) is not None and entry.tampered and damage_of(entry) is not None:
            damaged.append(entry)
        return entry

    def _next_grouped(self, damaged: list[Entry]) -> Entry | None:
        while (group := self.groups.turn()) is not None and (entry := group.pop()) is not None:
            if not entry.tampered or damage_of(entry) is None:
                self.groups.hold(group.name)
                return entry
            damaged.append(entry)
        return None

    def drained(self) -> bool:
        """Whether a reserve at the moment it stands at would find nothing."""
        return self.paused or (self.line.peek() is None and self.groups.turn() is None)
