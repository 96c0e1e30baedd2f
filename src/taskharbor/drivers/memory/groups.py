"""The groups of one queue: jobs of a group start in the order in which they became due, at most `limit` at once.

A group exists while a member of it is due or inflight; only a limit that was set stays with its name. Groups with a
due member and free capacity are in `turns`, each once, and are served in turn: nothing ever searches all groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from taskharbor.drivers.memory.heaps import EntryHeap
from taskharbor.drivers.memory.records import Entry

_SLACK = 64


class Group(EntryHeap):
    """The due members of a group, and how many of the others are inflight."""

    __slots__ = ("inflight", "limit", "name", "waiting")

    def __init__(self, name: str, limit: int) -> None:
        super().__init__()
        self.name = name
        self.limit = limit
        self.inflight = 0
        self.waiting = False  # is in `turns`

    def has_capacity(self) -> bool:
        return self.inflight < self.limit


class Groups:
    """All groups of a queue, by name."""

    __slots__ = ("_groups", "_limits", "turns")

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._limits: dict[str, int] = {}
        self.turns: deque[Group] = deque()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def has_limits(self) -> bool:
        return bool(self._limits)

    def set_limit(self, name: str, limit: int) -> bool:
        """Set a group's limit unless it has one; returns whether another member may run by that."""
        if name in self._limits:
            return False
        self._limits[name] = limit
        group = self._groups.get(name)
        if group is None:
            return False
        group.limit = limit
        return self._consider(group)

    def push(self, name: str, entry: Entry) -> None:
        """A member becomes due: its place is by its time, then its arrival."""
        group = self._get(name)
        group.push((entry.time, entry.arrival), entry)
        self._consider(group)

    def discard(self, name: str, entry: Entry) -> None:
        """A due member leaves without being reserved."""
        group = self._groups[name]
        group.discard(entry)
        self._forget_if_idle(group)

    def turn(self) -> Group | None:
        """The group whose turn it is: it has a due member and free capacity."""
        while self.turns:
            group = self.turns[0]
            if group.has_capacity() and group.peek() is not None:
                return group
            self.turns.popleft()
            group.waiting = False
            self._forget_if_idle(group)
        return None

    def hold(self, name: str) -> None:
        """A member is inflight now. If it was the group's turn, it goes to the end."""
        group = self._get(name)
        group.inflight += 1
        if self.turns and self.turns[0] is group:
            self.turns.popleft()
            group.waiting = False
        self._consider(group)

    def free(self, name: str) -> bool:
        """A member is no longer inflight; returns whether another may run now."""
        group = self._groups[name]
        group.inflight -= 1
        self._forget_if_idle(group)
        return self._consider(group)

    def has_capacity(self, name: str) -> bool:
        """Whether another member may run."""
        group = self._groups.get(name)
        return group is None or group.has_capacity()

    def head(self, name: str) -> Entry | None:
        """The due member that is first in its group, which stays."""
        group = self._groups.get(name)
        return group.peek() if group is not None else None

    def take(self, name: str) -> None:
        """Out of turn: the first due member of a group leaves and is inflight."""
        self._get(name).pop()
        self.hold(name)

    def _get(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self._limits.get(name, 1))
        return group

    def _consider(self, group: Group) -> bool:
        if group.inflight >= group.limit or group.size() <= group.stale:
            return False
        if not group.waiting:
            group.waiting = True
            self.turns.append(group)
            if len(self.turns) > 2 * len(self._groups) + _SLACK:
                self.turns = deque(group for group in self.turns if self._groups.get(group.name) is group)
        return True

    def _forget_if_idle(self, group: Group) -> None:
        # It may stay in `turns` until its turn comes, beside a new group of the same name: it is empty.
        if group.inflight == 0 and group.size() <= group.stale and self._groups.get(group.name) is group:
            del self._groups[group.name]
