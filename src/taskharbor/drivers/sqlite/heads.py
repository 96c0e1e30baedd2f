"""The heads of queues: what comes next, and since when the oldest ready job waits. Reads no payload, writes nothing.

The rows say who stands in line as seen from the time of the queue (`at`), which a reserve moves. Between `at` and `now`
lie the jobs that became due since, or, if the clock went back, those that are not ready yet. A call looks at a bounded
number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.sqlite.records import LAST_MICROSECOND, LEASED, WAITING
from taskharbor.drivers.sqlite.session import ReadSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.job import QueueHead
from taskharbor.model.times import from_us, to_us

OLDEST_IN_LINE = statement("heads_line")
DUE = statement("heads_due")
UNGROUPED = statement("heads_ungrouped")
OF_GROUP = statement("heads_group")
TURNS = statement("heads_turns")
QUEUE = "SELECT at, groups_next FROM taskharbor_queues WHERE name = ?"
GROUP = "SELECT coalesce(group_limit, 1) - inflight, turn FROM taskharbor_groups WHERE queue = ? AND name = ?"
FEW = 8  # of the jobs that became due, the first nearly always is the oldest


class DueJob(NamedTuple):
    """A job that a reserve would move into the line, or out of it, before it takes one."""

    num: int
    moment: int
    time: int
    rank: int
    arrival: int
    id: str
    group: str | None

    def place(self, since: int) -> tuple[int, int, int, str]:
        return self.rank, since, self.arrival, self.id


def heads(session: ReadSession, names: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    """The head of each of these queues, in their order."""
    looks = looks_for_each(names)
    return [_head(session, name, to_us(now), n, looks) for name in names]


def _head(session: ReadSession, name: str, now: int, n: int, looks: int) -> QueueHead:
    row = session.one(QUEUE, name)
    if row is None:
        return QueueHead(name)
    head = _QueueAt(session, name, row[0], now, looks)
    if head.is_early_for_many():
        return QueueHead(name, oldest_known=False, next_known=n == 0)
    oldest, following = head.oldest(), head.next(n, bool(row[1])) if n else ()
    return QueueHead(
        name,
        from_us(oldest) if type(oldest) is int else None,
        following or (),
        oldest_known=oldest is not False,
        next_known=following is not None,
    )


class _QueueAt:
    """A queue that stands at one moment, read at another."""

    def __init__(self, session: ReadSession, name: str, at: int, now: int, looks: int) -> None:
        self._session, self._name, self._at, self._now, self._looks = session, name, at, now, looks
        self._early = self._between(LEASED, looks) if now < at else []

    def _between(self, state: int, count: int) -> list[DueJob]:
        after, until = sorted((self._at, self._now))
        return [DueJob(*row) for row in self._session.all(DUE, state, self._name, after, until, count)]

    def is_early_for_many(self) -> bool:
        """Whether many stand in line that are not ready at this earlier moment: all would have to be passed over."""
        if self._now >= self._at:
            return False
        return len(self._early) + len(self._between(WAITING, self._looks)) >= self._looks

    def oldest(self) -> int | bool | None:
        """Since when the oldest waits; None: none does; False: not known."""
        given = {"queue": self._name, "now": self._now, "looks": self._looks}
        in_line, looked = self._session.execute(OLDEST_IN_LINE, given).fetchall()[0]
        if looked >= self._looks:
            return False
        found = [in_line] if in_line is not None else []
        if self._now > self._at:
            found += [job.moment for job in self._between(LEASED, 1)]  # since the end of the lease
            for count in (FEW, self._looks):
                scheduled = self._between(WAITING, count)
                oldest = min((job.time for job in scheduled), default=None)
                # A job is due at its moment, or later if it was stored later: none that follows is due before this one.
                if oldest is None or oldest <= scheduled[-1].moment or len(scheduled) < count:
                    break
            else:
                return False
            found += [oldest] if oldest is not None else []
        return max(0, min(min(found), LAST_MICROSECOND)) if found else None

    def next(self, n: int, groups_next: bool) -> tuple[str, ...] | None:
        """The ids of the first `n` that may run; None: not known."""
        joining: dict[str | None, list[tuple[int, int, int, str]]] = {}
        freed: Counter[str | None] = Counter()  # places in groups; fewer than none: leases that hold at this moment
        freed.subtract(job.group for job in self._early)
        if self._now > self._at:
            scheduled, expired = self._between(WAITING, self._looks), self._between(LEASED, self._looks)
            if len(scheduled) + len(expired) >= self._looks:
                return None
            for job in sorted(scheduled):  # by num, as move_clock does
                joining.setdefault(job.group, []).append(job.place(job.time))
            for job in sorted(expired):
                joining.setdefault(job.group, []).append(job.place(job.moment))
            freed.update(job.group for job in expired)
        ungrouped = [*self._session.all(UNGROUPED, self._name, self._now, n), *joining.pop(None, [])]
        groups, is_behind = [], self._now < self._at  # then groups in line may have no member that is ready
        turns = self._turns(self._looks if is_behind else n + len(freed), joining)
        if is_behind and len(turns) >= self._looks:
            return None
        for group, room in turns:
            capacity = min(n, room + freed[group])
            if capacity > 0:
                members = self._session.all(OF_GROUP, self._name, group, self._now, capacity)
                groups.append(_ids([*members, *joining.get(group, [])])[:capacity])
        return in_turn(_ids(ungrouped), groups, groups_next, n)

    def _turns(self, count: int, joining: Iterable[str | None]) -> list[tuple[str, int]]:
        """Groups in the order of their turns, and how many more of each may run: last those that have none yet, in the
        order in which they would get it."""
        turns: list[tuple[str, int]] = self._session.all(TURNS, self._name, count)
        known = {name for name, _ in turns}
        for group in joining:
            if group is not None and group not in known:
                room, turn = self._session.one(GROUP, self._name, group) or (1, None)
                if turn is None:
                    turns.append((group, room))
        return turns


def _ids(places: list[tuple[int, int, int, str]]) -> list[str]:
    return [id for *_, id in sorted(places)]
