"""Granting leases. Ungrouped jobs are read and leased in one statement each way for the whole batch; grouped ones one
at a time, because each changes which group is next.

A granted lease is stored later, for many jobs at once (`Grants.write`). Until then the rows still say that the jobs
are in line, so leases are written before more rows are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.drivers.sqlite.damage import damage_of
from taskharbor.drivers.sqlite.records import COLUMNS, UNREADABLE, JobRow, lost_by, plain_record, record_of, sound_row
from taskharbor.drivers.sqlite.session import QueueRow, QueueState, WriteSession
from taskharbor.drivers.sqlite.statements import UNKNOWN_STATE, statement
from taskharbor.drivers.sqlite.transitions import move_clock, set_aside
from taskharbor.model.ids import new_tokens
from taskharbor.model.lease import Lease, Reserved
from taskharbor.model.times import to_us

READY = statement("ready")
BY_NUM = statement("by_num")
NUM, IS_PLAIN = 0, -1  # the first column of both, and the last of ready.sql
GROUP_HEAD = statement("group_head")
NEXT_GROUP = statement("next_group")
TAKE_GROUP_PLACE = "UPDATE taskharbor_groups SET inflight = inflight + 1, turn = NULL WHERE queue = ? AND name = ?"
GRANT = statement("grant")
IN_UNKNOWN_STATE = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE {UNKNOWN_STATE} LIMIT 1000"

_encode = msgspec.json.Encoder().encode


class Grants:
    """The leases that one call grants."""

    def __init__(
        self, session: WriteSession, now: datetime, step: timedelta, lease_for: timedelta, worker: str, limit: int
    ) -> None:
        self.session = session
        self.began_at = now + step
        self.now = to_us(self.began_at)
        self.expires_at = now + lease_for  # by the clock of the worker, which has not followed the step yet
        self.expires = to_us(self.expires_at + step)
        self.worker = worker
        self._tokens = new_tokens(limit)
        self._unwritten: dict[int, str] = {}  # num → token
        self.taken: list[Reserved] = []

    def take_rows(self, rows: Sequence[Sequence[Any]], queue: str) -> int:
        """Take the jobs of rows of ready.sql; returns how many were undamaged."""
        taken, expires_at, now, worker = self.taken, self.expires_at, self.began_at, self.worker
        unwritten, tokens, is_readable = self._unwritten, self._tokens, not self.session.reads_any_text
        before = len(taken)
        special = [row[NUM] for row in rows if not row[IS_PLAIN]]
        whole = {row[NUM]: row for row in self.session.all(BY_NUM, _encode(special).decode())} if special else {}
        for row in rows:
            record = plain_record(row, queue, now, worker) if is_readable else None
            if record is not None:  # as nearly always, so not by `take_row`: a call costs as much as the rest
                unwritten[row[NUM]] = token = next(tokens)
                taken.append(Reserved(record, Lease(record.id, queue, token, expires_at)))
            else:
                self.take_row(whole.get(row[NUM]) or self.session.one(BY_NUM, f"[{row[NUM]}]"))
        return len(taken) - before

    def write(self) -> None:
        """Store the leases that were granted since the last call."""
        if self._unwritten:
            self.session.execute(GRANT, (self.expires, self.worker, self.now, _encode(self._unwritten).decode()))
            self._unwritten.clear()

    def take_row(self, row: Sequence[Any]) -> bool:
        """Take the job of a row of all columns. False: it is damaged, and was set aside."""
        job = sound_row(row)
        if job is not None and (not self.session.reads_any_text or damage_of(JobRow(*row)) is None):
            record = record_of(job, reserved=(self.began_at, self.worker))
            if UNREADABLE not in (record.depends_on, record.metadata, record.idempotency_key):
                token = next(self._tokens)
                self._unwritten[job.num] = token
                self.taken.append(
                    Reserved(record, Lease(record.id, record.queue, token, self.expires_at), lost_by(job))
                )
                return True
        set_aside(self.session, JobRow(*row), self.now)
        return False


class QueueScan:
    """One queue of a reserve: its ungrouped line, and its groups in turn."""

    def __init__(self, grants: Grants, queue: QueueRow, chunk: int, may_have_groups: bool) -> None:
        self.grants = grants
        self.session = grants.session
        self.queue = queue
        self._chunk = chunk
        self._rows: deque[Sequence[Any]] = deque()
        self._has_more = True
        self._may_have_groups = may_have_groups
        self.has_given = False

    def take(self, count: int) -> int:
        """Take up to `count` jobs, grouped and ungrouped ones in turn; returns how many."""
        taken = 0
        while taken < count:
            if not self._may_have_groups:
                found = self._ungrouped(count - taken)
            elif self.queue.groups_next:
                found = self._grouped() or self._ungrouped(1)
            else:
                found = self._ungrouped(1) or self._grouped()
            if not found:
                break
            taken += found
        if taken:
            self.has_given = True
        return taken

    def _ungrouped(self, count: int) -> int:
        while True:
            if not self._rows and not self._read_more():
                return 0
            rows = [self._rows.popleft() for _ in range(min(count, len(self._rows)))]
            found = self.grants.take_rows(rows, self.queue.name)
            if found:
                if self._may_have_groups:
                    self._set_next(groups=1)
                return found

    def _read_more(self) -> bool:
        if self._has_more:
            self.grants.write()
            self._rows.extend(self.session.all(READY, self.queue.name, self._chunk))
            self._has_more = len(self._rows) == self._chunk
        return bool(self._rows)

    def _grouped(self) -> int:
        while self._may_have_groups:
            row = self.session.one(NEXT_GROUP, self.queue.name)
            if row is None:
                self._may_have_groups = False
                return 0
            taken = self._take_from(row[0])
            self.session.flush_groups()
            if taken:
                return 1
        return 0

    def _take_from(self, group: str) -> bool:
        """Take the first member of a group. False: it has none in line, or a damaged one."""
        row = self.session.one(GROUP_HEAD, self.queue.name, group)
        if row is None:
            self.session.touch_group(self.queue.name, group)
            return False
        if not self.grants.take_row(row):
            return False
        self.grants.write()
        self.session.execute(TAKE_GROUP_PLACE, (self.queue.name, group))
        self.session.touch_group(self.queue.name, group)
        self._set_next(groups=0)
        return True

    def _set_next(self, groups: int) -> None:
        """Whether the groups are next (1), or the ungrouped line (0)."""
        if self.queue.groups_next != groups:
            self.queue.groups_next, self.queue.changed = groups, True


def reserve(
    session: WriteSession,
    names: Sequence[str],
    now: datetime,
    lease_for: timedelta,
    limit: int,
    worker: str,
    stepped: int | None,
) -> tuple[list[Reserved], dict[str, int]]:
    """Take up to `limit` runnable jobs. If there were fewer, also return the last arrival in each queue: a `wait` is
    for what comes later. `stepped`: of the caller's last reading of the store's clock."""
    found = [session.queue_before_reserve(name, to_us(now), stepped) for name in dict.fromkeys(names)]
    states = [state for state in found if state is not None]
    grants = Grants(session, now, states[0].step if states else timedelta(0), lease_for, worker, limit)
    scans = _scans(grants, states, limit)
    if len(scans) == 1:
        scans[0].take(limit)
    else:
        _take_in_turns(grants, scans, limit)
    for scan in scans:
        # `at` must lie before the end of these leases, or they would count as expired; see transitions.py.
        if scan.has_given and scan.queue.at >= grants.expires:
            scan.queue.at, scan.queue.changed = grants.now, True
    grants.write()
    if lease_for <= timedelta(0):
        _expire_at_once(session, grants)
    if len(grants.taken) == limit:
        return grants.taken, {}
    return grants.taken, {state.queue.name: state.queue.arrived for state in states}


def _scans(grants: Grants, states: Sequence[QueueState], limit: int) -> list[QueueScan]:
    """A scan of each queue that is not paused, brought to the present."""
    session, now = grants.session, grants.now
    if any(state.store_is_damaged for state in states):
        for row in session.all(IN_UNKNOWN_STATE):
            set_aside(session, JobRow(*row), now)
        session.flush_groups()
    serving = [state for state in states if not state.queue.paused]
    chunk = limit if len(serving) == 1 else limit // max(len(serving), 1) + 1
    scans = []
    for queue, _, time_changes_it, has_group_in_turn, is_damaged in serving:
        if time_changes_it:
            move_clock(session, queue, now)
            session.flush_groups()
        scans.append(QueueScan(grants, queue, chunk, has_group_in_turn or time_changes_it or is_damaged))
    return scans


def _take_in_turns(grants: Grants, scans: Sequence[QueueScan], limit: int) -> None:
    """Take one job from each queue in turn, first from the queue that was served longest ago by any caller."""
    turns, left = deque(sorted(scans, key=_served)), limit
    while turns and left:
        scan = turns.popleft()
        found = scan.take(1 if turns else left)
        if found:
            left -= found
            scan.queue.served, scan.queue.changed = grants.session.next_number(), True
            turns.append(scan)


def _expire_at_once(session: WriteSession, grants: Grants) -> None:
    """Leases that end before they begin: their jobs are in line again, and take no place of their group."""
    for item in grants.taken:
        session.execute("UPDATE taskharbor_jobs SET lined = 1, time = moment WHERE id = ?", (item.job.id,))
        if item.job.group is not None:
            session.touch_group(item.job.queue, item.job.group, -1)


def _served(scan: QueueScan) -> int:
    return scan.queue.served
