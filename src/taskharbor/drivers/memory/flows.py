"""Edges between jobs, and the flows they belong to.

`dependents` of a job are those that name it in their `depends_on`; the value says whether that one is unfinished
(neither done nor cancelled). `open` of a blocked job is how many of its dependencies are not done. Both are counted,
never searched for: a join of twenty thousand jobs costs each of them the same as a join of two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from taskharbor.drivers.memory.records import BLOCKED, CANCELLED, DLQ, DONE, UNKNOWN, Entry, finished
from taskharbor.model.job import FlowStatus

if TYPE_CHECKING:
    from taskharbor.drivers.memory.store import MemoryStore


class StoredFlow:
    """One flow. It exists as long as a record of it does."""

    __slots__ = ("_ends", "cancelled", "dead", "members", "open", "parked", "stopped")

    def __init__(self) -> None:
        self.members: dict[Entry, None] = {}
        self.open = 0  # members neither done nor cancelled
        self.cancelled = False
        self.parked: dict[Entry, None] = {}  # finished members that prune met while the flow was open
        self.dead: dict[Entry, None] = {}  # members that are, or once were, dead
        self.stopped: dict[Entry, None] = {}  # the same of those cancelled
        self._ends: tuple[Entry, Entry] | None = None  # the first and the last member by id; None: to be found again

    def add(self, entry: Entry) -> None:
        """A new member."""
        if not self.members:
            self._ends = (entry, entry)
        elif self._ends is not None:
            first, last = self._ends
            id = entry.record.id
            self._ends = (entry if id < first.record.id else first, entry if id > last.record.id else last)
        self.members[entry] = None
        self.open += 1

    def remove(self, entry: Entry) -> None:
        """A member is forgotten."""
        for entries in (self.members, self.dead, self.stopped):
            entries.pop(entry, None)
        if self._ends is not None and entry in self._ends:
            self._ends = None

    def ends(self) -> tuple[Entry, Entry]:
        """The first and the last member in the order of ids."""
        if self._ends is None:
            self._ends = min(self.members, key=_id), max(self.members, key=_id)
        return self._ends


def status_of(flow: StoredFlow) -> FlowStatus:
    """The status of a flow, without a look at each member."""
    if _any_stands(flow.dead, (DLQ, UNKNOWN)):
        return FlowStatus.FAILED
    if _any_stands(flow.stopped, (CANCELLED,)):
        return FlowStatus.CANCELLED
    return FlowStatus.RUNNING if flow.open else FlowStatus.SUCCEEDED


def _any_stands(entries: dict[Entry, None], standings: tuple[int, ...]) -> bool:
    """Whether one of the entries has one of the standings; those before it that no longer have one are dropped."""
    while entries:
        entry = next(iter(entries))
        if entry.standing in standings:
            return True
        del entries[entry]
    return False


def dependencies(store: MemoryStore, entry: Entry) -> list[Entry]:
    """The jobs it depends on that are still there, each once."""
    found = [store.entries.get(id) for id in dict.fromkeys(entry.record.depends_on)]
    return [dependency for dependency in found if dependency is not None]


def waiting_for(store: MemoryStore, entry: Entry) -> tuple[str, ...]:
    """The dependencies that are not done, in their order, each once.

    A dependency may be gone and its id enqueued again: that job does not have this one among its dependents.
    """
    return tuple(
        dependency.record.id
        for dependency in dependencies(store, entry)
        if dependency.standing != DONE and entry in (dependency.dependents or ())
    )


def last_in_place(store: MemoryStore, entry: Entry) -> Entry:
    """The job that has the place of this one now, over however many handovers, as far as its heirs still exist."""
    while entry.record.handed_to is not None and (heir := store.entries.get(entry.record.handed_to)) is not None:
        entry = heir
    return entry


def link(store: MemoryStore, entry: Entry) -> None:
    """Make an unfinished job known to its dependencies, and count those that are not done."""
    entry.open = 0
    for dependency in dependencies(store, entry):
        _hold(dependency, entry)
        entry.open += dependency.standing != DONE


def unlink(store: MemoryStore, entry: Entry) -> None:
    """The job is being forgotten: its dependencies forget it too."""
    for dependency in dependencies(store, entry):
        if dependency.dependents is not None:
            dependency.dependents.pop(entry, None)


def hold(store: MemoryStore, entry: Entry) -> None:
    """The job is unfinished again: what it depends on must stay."""
    for dependency in dependencies(store, entry):
        _hold(dependency, entry)


def unhold(store: MemoryStore, entry: Entry) -> list[Entry]:
    """The job is finished; returns the dependencies that no unfinished job needs any more."""
    let_go = []
    for dependency in dependencies(store, entry):
        if dependency.dependents is not None and dependency.dependents.get(entry):
            dependency.dependents[entry] = False
            dependency.holds -= 1
            if not dependency.holds:
                let_go.append(dependency)
    return let_go


def _hold(dependency: Entry, entry: Entry) -> None:
    dependents = _dependents(dependency)
    if not dependents.get(entry):
        dependents[entry] = True
        dependency.holds += 1


def _dependents(dependency: Entry) -> dict[Entry, bool]:
    if dependency.dependents is None:
        dependency.dependents = {}
    return dependency.dependents


def release_dependents(store: MemoryStore, entry: Entry, now: int) -> None:
    """The job is done: those that waited for nothing else join their queues, in the order in which they were stored."""
    if entry.dependents:
        for dependent in sorted(entry.dependents, key=_stored):
            _one_less(store, dependent, now)


def hand_over(store: MemoryStore, old: Entry, dependents: list[Entry], new: Entry, now: int) -> None:
    """`new` takes the place of `old` in the `depends_on` of these dependents."""
    leaving, joining = _dependents(old), _dependents(new)
    for dependent in sorted(dependents, key=_stored):
        if leaving.pop(dependent):
            old.holds -= 1
        known = dependent in joining
        depends_on = tuple(new.record.id if id == old.record.id else id for id in dependent.record.depends_on)
        dependent.record = replace(dependent.record, depends_on=depends_on)
        if finished(dependent):
            joining.setdefault(dependent, False)
        else:
            _hold(new, dependent)
        if known or new.standing == DONE:
            _one_less(store, dependent, now)


def _one_less(store: MemoryStore, dependent: Entry, now: int) -> None:
    if dependent.standing == BLOCKED:
        dependent.open -= 1
        if not dependent.open:
            store.join(dependent, dependent.record, now)


def _stored(entry: Entry) -> int:
    return entry.stored


def _id(entry: Entry) -> str:
    return entry.record.id
