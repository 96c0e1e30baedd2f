"""Granting leases. Ungrouped jobs are read and leased in one statement each way for the whole batch; grouped ones one
at a time, because each changes whose turn it is.

What was taken from the line but is not yet written still stands in it for SQLite: it is written before more is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.sqlite.damage import damage_of
from taskharbor.drivers.sqlite.records import JobRow, plain_record, record_of, sound, ticks
from taskharbor.drivers.sqlite.session import Queue, WriteSession
from taskharbor.drivers.sqlite.statements import COLUMNS, UNKNOWN, statement
from taskharbor.drivers.sqlite.transitions import move, set_aside
from taskharbor.model.ids import new_tokens
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Lease, Reserved

LINE = statement("line")
BY_NUM = statement("by_num")
GROUP_HEAD = statement("group_head")
NEXT_GROUP = statement("next_group")
HOLD_SLOT = statement("hold_slot")
GRANT = statement("grant")
STRANGE = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE {UNKNOWN} LIMIT 1000"

_encode = msgspec.json.Encoder().encode


class Grants:
    """What one call grants: to whom, until when, and what was taken so far."""

    def __init__(self, session: WriteSession, now: datetime, lease_for: timedelta, worker: str, limit: int) -> None:
        self.session = session
        self.now = ticks(now)
        self.expires_at = now + lease_for
        self.expires = ticks(self.expires_at)
        self.worker = worker
        self._tokens = new_tokens(limit)
        self._unwritten: dict[int, str] = {}  # num → token
        self.taken: list[Reserved] = []

    def take(self, num: int, record: JobRecord) -> None:
        token = next(self._tokens)
        self._unwritten[num] = token
        self.taken.append(Reserved(record, Lease(record.id, record.queue, token, self.expires_at)))

    def take_line(self, rows: Sequence[Sequence[Any]], queue: str) -> int:
        """Take jobs of the line as line.sql answered them; answers how many were sound."""
        before = len(self.taken)
        special = [row[0] for row in rows if not row[11]]
        whole = {row[0]: row for row in self.session.all(BY_NUM, _encode(special).decode())} if special else {}
        for row in rows:
            record = None if self.session.any_text else plain_record(row, queue)
            if record is None:
                record = self.granted(whole.get(row[0]) or self.session.one(BY_NUM, f"[{row[0]}]"))
                if record is None:
                    continue
            self.take(row[0], record)
        return len(self.taken) - before

    def write(self) -> None:
        if self._unwritten:
            self.session.execute(GRANT, (self.expires, self.worker, _encode(self._unwritten).decode()))
            self._unwritten.clear()

    def granted(self, row: Sequence[Any]) -> JobRecord | None:
        """The record as it will read under its lease, or None: it is damaged, and was set aside."""
        if sound(row) and (not self.session.any_text or damage_of(row) is None):
            try:
                return record_of(row, 1)
            except Exception:  # a field that nobody could have stored: the reason is found again below
                pass
        set_aside(self.session, JobRow(*row), self.now)
        return None


class Lineup:
    """One queue, and whose turn it is in it."""

    def __init__(self, grants: Grants, queue: Queue, chunk: int, groups: bool) -> None:
        self.grants = grants
        self.session = grants.session
        self.queue = queue
        self._chunk = chunk
        self._read: deque[Sequence[Any]] = deque()
        self._more = True
        self._groups = groups  # whether a group may stand in turn
        self.gave = False

    def take(self, count: int) -> int:
        """Up to so many jobs, grouped and ungrouped ones in turn; answers how many."""
        taken = 0
        while taken < count:
            if not self._groups:
                found = self._ungrouped(count - taken)
            elif self.queue.groups_next:
                found = self._grouped() or self._ungrouped(1)
            else:
                found = self._ungrouped(1) or self._grouped()
            if not found:
                break
            taken += found
        if taken:
            self.gave = True
        return taken

    def _ungrouped(self, count: int) -> int:
        while True:
            if not self._read and not self._read_on():
                return 0
            rows = [self._read.popleft() for _ in range(min(count, len(self._read)))]
            found = self.grants.take_line(rows, self.queue.name)
            if found:
                if self._groups:
                    self._turn(1)
                return found

    def _read_on(self) -> bool:
        if self._more:
            self.grants.write()
            self._read.extend(self.session.all(LINE, self.queue.name, self._chunk))
            self._more = len(self._read) == self._chunk
        return bool(self._read)

    def _grouped(self) -> int:
        while self._groups:
            name = self.session.one(NEXT_GROUP, self.queue.name)
            if name is None:
                self._groups = False
                return 0
            row = self.session.one(GROUP_HEAD, self.queue.name, name[0])
            if row is None:
                self.session.touch_group(self.queue.name, name[0])
            else:
                record = self.grants.granted(row)
                if record is not None:
                    self.grants.take(row[0], record)
                    self.grants.write()
                    self.session.execute(HOLD_SLOT, (self.queue.name, name[0]))
                    self.session.touch_group(self.queue.name, name[0])
                    self._turn(0)
                    self.session.flush_groups()
                    return 1
            self.session.flush_groups()
        return 0

    def _turn(self, groups_next: int) -> None:
        if self.queue.groups_next != groups_next:
            self.queue.groups_next, self.queue.dirty = groups_next, True


def reserve(
    session: WriteSession, names: Sequence[str], now: datetime, lease_for: timedelta, limit: int, worker: str
) -> tuple[list[Reserved], dict[str, int]]:
    """Take up to `limit` runnable jobs; with it, the last arrival in each queue that was left with nothing."""
    grants = Grants(session, now, lease_for, worker, limit)
    known, lineups = _lineups(grants, names, limit)
    if len(lineups) == 1:
        lineups[0].take(limit)
    else:
        _in_turns(grants, lineups, limit)
    for lineup in lineups:
        # A lease must be seen from a moment before its end; see store.move.
        if lineup.gave and lineup.queue.at >= grants.expires:
            lineup.queue.at, lineup.queue.dirty = grants.now, True
    grants.write()
    if lease_for <= timedelta(0):
        _expire_at_once(session, grants)
    if len(grants.taken) == limit:
        return grants.taken, {}
    return grants.taken, {queue.name: queue.arrived for queue in known}


def _lineups(grants: Grants, names: Sequence[str], limit: int) -> tuple[list[Queue], list[Lineup]]:
    """The queues that exist, and those to be served, each brought to this moment."""
    session, now = grants.session, grants.now
    looks = [look for name in dict.fromkeys(names) if (look := session.look(name, now)) is not None]
    if any(damaged for _, _, _, damaged in looks):
        for row in session.all(STRANGE):
            set_aside(session, JobRow(*row), now)
        session.flush_groups()
    serving = [look for look in looks if not look[0].paused]
    chunk = limit if len(serving) == 1 else limit // max(len(serving), 1) + 1
    lineups = []
    for queue, changes, groups, damaged in serving:
        if changes:
            move(session, queue, now)
            session.flush_groups()
        lineups.append(Lineup(grants, queue, chunk, groups or changes or damaged))
    return [look[0] for look in looks], lineups


def _in_turns(grants: Grants, lineups: Sequence[Lineup], limit: int) -> None:
    """One job from each in turn, the queue first that was served longest ago: whoever asks for whichever queues."""
    turns, left = deque(sorted(lineups, key=_served)), limit
    while turns and left:
        lineup = turns.popleft()
        found = lineup.take(1 if turns else left)
        if found:
            left -= found
            lineup.queue.served, lineup.queue.dirty = grants.session.next_number(), True
            turns.append(lineup)


def _expire_at_once(session: WriteSession, grants: Grants) -> None:
    """Leases that were over before they began: their jobs are in line again, and hold no slot."""
    for item in grants.taken:
        session.execute("UPDATE taskharbor_jobs SET lined = 1, time = moment WHERE id = ?", (item.job.id,))
        if item.job.group is not None:
            session.touch_group(item.job.queue, item.job.group, -1)


def _served(lineup: Lineup) -> int:
    return lineup.queue.served
