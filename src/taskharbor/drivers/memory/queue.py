"""One queue: its jobs that are due, scheduled or inflight. It stands at a moment; `move` brings it to another.

    SCHEDULED ──(run_at past)──► READY ──take, grant──► INFLIGHT ──(lease past)──► EXPIRED ──take, grant──► INFLIGHT
              ◄──(ahead again)──                                  ◄──(ahead again)─

Workers' clocks differ, so `now` may go back between two calls. Moving back undoes exactly what moving on did: no job
starts early, and a lease that is valid again at the earlier moment is valid.
"""

from __future__ import annotations

from taskharbor.drivers.memory.calendar import Calendar
from taskharbor.drivers.memory.groups import Groups
from taskharbor.drivers.memory.heaps import OrderedEntries
from taskharbor.drivers.memory.records import DUE, EXPIRED, INFLIGHT, READY, SCHEDULED, STANDINGS, Entry, damage_of
from taskharbor.model.times import to_us


class JobQueue:
    """The jobs of one queue that wait or run, and how many of all its jobs have which standing."""

    __slots__ = (
        "arrived",
        "calendar",
        "counts",
        "groups",
        "groups_next",
        "keys",
        "name",
        "paused",
        "served",
        "ungrouped",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.ungrouped = OrderedEntries()  # due jobs without a group, by priority, time and arrival
        self.groups = Groups()
        self.groups_next = True  # whose turn it is: the groups' or the ungrouped jobs'
        self.calendar = Calendar()  # leased jobs by the end of the lease, scheduled ones by `run_at`
        self.counts = [0 for _ in STANDINGS]
        self.keys: dict[str, str] = {}  # idempotency key → id
        self.paused = False
        self.arrived = 0  # the number of the last event after which a reserve may find more, or sooner, than before
        self.served = 0  # the number of its last turn among other queues

    def clear(self) -> None:
        """Let go of all entries."""
        self.ungrouped, self.groups, self.calendar = OrderedEntries(), Groups(), Calendar()

    def set_standing(self, entry: Entry, standing: int) -> None:
        self.counts[entry.standing] -= 1
        self.counts[standing] += 1
        entry.standing = standing

    def empty(self) -> bool:
        return not any(self.counts)

    # Moving in time

    def move(self, now: int) -> None:
        """Stand at this moment: afterwards READY, SCHEDULED, INFLIGHT and EXPIRED are true for it."""
        calendar = self.calendar
        if now > calendar.now:
            for entry in calendar.forward(now):
                if entry.standing == INFLIGHT:
                    self.expire(entry)
                else:
                    self.set_standing(entry, READY)
                    self._enter(entry)
        elif now < calendar.now:
            for entry in calendar.back(now):
                self._withdraw(entry)
                if entry.standing == EXPIRED:
                    self.set_standing(entry, INFLIGHT)
                    if entry.record.group is not None:
                        self.groups.hold(entry.record.group)
                else:
                    self.set_standing(entry, SCHEDULED)

    def expire(self, entry: Entry) -> None:
        """The lease is over: the job is due again since that moment, with its old arrival and still with its token."""
        self.set_standing(entry, EXPIRED)
        assert entry.moment is not None
        entry.time = entry.moment
        if entry.record.group is not None:
            self.groups.free(entry.record.group)
        self._enter(entry)

    # Coming and going

    def join(self, entry: Entry, now: int, arrival: int) -> None:
        """A job may run from its `run_at` on: it becomes due, or waits for that moment."""
        entry.arrival = arrival
        run_at = entry.record.run_at
        if run_at is None:
            entry.time = now
        else:
            moment = to_us(run_at)
            entry.time = max(moment, now)
            self.calendar.add(entry, moment)
            if moment > self.calendar.now:
                self.arrived = arrival  # also if it lies ahead: a worker that waits has to know until when
                self.set_standing(entry, SCHEDULED)
                return
        if entry.time == now:
            self.arrived = arrival
        self.set_standing(entry, READY)
        self._enter(entry)

    def leave(self, entry: Entry) -> bool:
        """Take a job out of whatever it is in; returns whether another job of its group may run now."""
        standing = entry.standing
        if entry.moment is not None:
            self.calendar.remove(entry)
        if standing == INFLIGHT:  # first, because this is what an outcome finds
            entry.lease = None
            group = entry.record.group
            return group is not None and self.groups.free(group)
        if standing in DUE:
            self._withdraw(entry)
            entry.lease = None
        return False

    def _enter(self, entry: Entry) -> None:
        record = entry.record
        if record.group is None:
            self.ungrouped.push((-record.priority, entry.time, entry.arrival), entry)
        else:
            self.groups.push(record.group, entry)

    def _withdraw(self, entry: Entry) -> None:
        if entry.place is None:  # it was just taken out
            return
        if entry.record.group is None:
            self.ungrouped.discard(entry)
        else:
            self.groups.discard(entry.record.group, entry)

    # Reserving

    def take(self, limit: int, damaged: list[Entry]) -> list[Entry]:
        """Take out up to `limit` due jobs, grouped and ungrouped ones in turn. Damaged ones are put into `damaged`."""
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
        # No group has a job that may run: all others without a group, without checking the groups again for each.
        while len(taken) < limit and (popped := self.ungrouped.pop_many(limit - len(taken))):
            for entry in popped:
                if entry.tampered and damage_of(entry) is not None:
                    damaged.append(entry)
                else:
                    taken.append(entry)

    def _next_ungrouped(self, damaged: list[Entry]) -> Entry | None:
        while (entry := self.ungrouped.pop()) is not None and entry.tampered and damage_of(entry) is not None:
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
        return self.paused or (self.ungrouped.peek() is None and self.groups.turn() is None)
