"""Reading jobs, queues and their heads, flows, results, workers and figures. Nothing here writes except `add_figures`,
and no damaged record makes a read fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from taskharbor.drivers.base import FIGURES_KEPT_FOR, WORKER_SILENCE
from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.queries import check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.drivers.sqlite.damage import readable_record
from taskharbor.drivers.sqlite.records import (
    COLUMNS,
    DONE,
    LAST_MICROSECOND,
    LEASED,
    WAITING,
    JobRow,
    ids_json,
    is_moment,
    state_at,
)
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import last_in_place
from taskharbor.model.bounds import check_figures
from taskharbor.model.job import Figures, FlowInfo, JobInfo, QueueHead, State, WorkerInfo, flow_info, replace
from taskharbor.model.times import from_us, to_us

COUNTS = statement("counts")
UPCOMING = statement("upcoming")
QUEUES = statement("queues")
ADD_FIGURE = statement("add_figure")
OLD_FIGURES = statement("old_figures")
FORGET_FIGURE = "DELETE FROM taskharbor_figures WHERE minute = ? AND queue = ? AND name = ?"
MAX_FORGOTTEN_FIGURES = 1_000  # in one call
FIGURES = statement("figures")
FIGURES_OF_QUEUE = statement("figures_of_queue")
WAITING_FOR = statement("waiting_for")
ARRIVED = "SELECT name, arrived FROM taskharbor_queues WHERE name = ?"
PAUSED = "SELECT paused FROM taskharbor_queues WHERE name = ?"
WORKERS = "SELECT info FROM taskharbor_workers WHERE seen_at > ? ORDER BY name"
# A job that handed over and is the last in its place: the one that took it is gone.
RESULT = f"SELECT result FROM taskharbor_jobs WHERE id = ? AND state = {DONE} AND handed_to IS NULL"

OLDEST_IN_LINE = statement("heads_line")
DUE = statement("heads_due")
READY = statement("heads_ready")
TURNS = statement("heads_turns")
QUEUE_TIME = "SELECT at, groups_next FROM taskharbor_queues WHERE name = ?"
GROUP = "SELECT coalesce(group_limit, 1) - inflight, turn FROM taskharbor_groups WHERE queue = ? AND name = ?"
FEW = 8  # of the jobs that became due, the first nearly always is the oldest

_worker = msgspec.json.Decoder(WorkerInfo).decode

MAX_COUNT = 2**62  # SQLite holds no number beyond 63 bits
_COUNTED = ("inflight", "scheduled", "ready", "blocked", "done", "dlq", "cancelled")  # as counts.sql has them


def info_of(session: ReadSession, job: JobRow, now: int) -> JobInfo:
    """A job as it reads at `now`."""
    state = state_at(job.state, job.moment, now)
    record = readable_record(job)
    if state is State.INFLIGHT and job.moment is not None:
        return JobInfo(record, state, record.ran_on, from_us(job.moment))
    if state is State.BLOCKED:
        open = {id for (id,) in session.all(WAITING_FOR, job.num)}
        return JobInfo(record, state, waiting_for=tuple(id for id in dict.fromkeys(record.depends_on) if id in open))
    if state is State.READY and job.state == LEASED:  # its lease is over
        return JobInfo(replace(record, run_at=None), state)
    return JobInfo(record, state)


def inspect(session: ReadSession, id: str, now: datetime) -> JobInfo:
    """One job; JobNotFound if there is none of this id."""
    job = session.load(id)
    if job is None:
        raise no_job(id)
    return info_of(session, job, to_us(now))


def counts(session: ReadSession, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
    """How many jobs of each queue are in which state; each number up to the cap."""
    check_cap(cap)
    most = MAX_COUNT if cap is None else min(cap, MAX_COUNT)
    rows = session.execute(COUNTS, {"now": to_us(now), "cap": most}).fetchall()
    counted = (
        (queue, {state: min(number, most) for state, number in zip(_COUNTED, numbers, strict=True) if number})
        for queue, *numbers in rows
    )
    return {queue: states for queue, states in counted if states}


def upcoming(session: ReadSession, names: Sequence[str], now: datetime) -> datetime | None:
    """When the next scheduled job of these queues is due or the next lease in them ends; None if there is none."""
    given = {"queues": ids_json(names), "now": to_us(now), "last": LAST_MICROSECOND}
    moment = session.execute(UPCOMING, given).fetchall()[0][0]
    return None if moment is None else from_us(moment)


def queues(session: ReadSession) -> list[str]:
    """The queues that hold a job or are paused."""
    return sorted(name for (name,) in session.all(QUEUES))


def last_arrivals(session: ReadSession, names: Sequence[str]) -> dict[str, int]:
    """The number of the last arrival in each of these queues."""
    return dict(row for name in names for row in session.all(ARRIVED, name))


def flow(session: ReadSession, flow_id: str, now: datetime) -> FlowInfo:
    """A flow and its jobs; JobNotFound if there is none of this id."""
    moment = to_us(now)
    rows = session.all(f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE flow_id = ? ORDER BY id", flow_id)
    if not rows:
        raise no_flow(flow_id)
    return flow_info(flow_id, tuple(info_of(session, JobRow(*row), moment) for row in rows))


def results(session: ReadSession, ids: Sequence[str]) -> dict[str, bytes | None]:
    """The results of jobs, or of the jobs that took their places; those that are not done are left out."""
    found: dict[str, bytes | None] = {}
    for id in ids:
        last = last_in_place(session, id)
        if last is not None and (row := session.one(RESULT, last)) is not None:
            found[id] = row[0] if isinstance(row[0], bytes) else None
    return found


def workers(session: ReadSession, now: datetime) -> list[WorkerInfo]:
    """The workers with a recent heartbeat."""
    return [_worker(text) for (text,) in session.all(WORKERS, to_us(now - WORKER_SILENCE))]


def is_paused(session: ReadSession, queue: str) -> bool:
    """Whether a queue is paused."""
    row = session.one(PAUSED, queue)
    return row is not None and bool(row[0])


# Figures: what happened in which minute, added up for 72 hours


def add_figures(session: WriteSession, rows: Sequence[Figures], now: datetime) -> None:
    """Add numbers to those of their minutes, and forget some that are too old."""
    check_figures(rows)
    for row in rows:
        minute = to_us(row.minute)
        for name, number in row.counts.items():
            if number:
                session.execute(ADD_FIGURE, (minute, row.queue, name, number))
    for old in session.all(OLD_FIGURES, to_us(now - FIGURES_KEPT_FOR), MAX_FORGOTTEN_FIGURES):
        session.execute(FORGET_FIGURE, old)


def figures(session: ReadSession, since: datetime, until: datetime, queue: str | None) -> list[Figures]:
    """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
    span = to_us(since), to_us(until)
    rows = session.all(FIGURES, *span) if queue is None else session.all(FIGURES_OF_QUEUE, queue, *span)
    found: dict[tuple[int, str], dict[str, int]] = {}
    for minute, queue, name, number in rows:
        if is_moment(minute) and type(number) is int:  # nothing that another program wrote makes a read fail
            found.setdefault((minute, queue), {})[name] = number
    return [Figures(from_us(minute), queue, counts) for (minute, queue), counts in found.items()]


# The heads of queues: what comes next, and since when the oldest ready job waits
#
# The rows say who stands in line as seen from the time of the queue (`at`), which a reserve moves. Between `at` and
# `now` lie the jobs that became due since, or, if the clock went back, those that are not ready yet. A call looks at a
# bounded number of them.


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
    most = looks_for_each(names)
    return [_head(session, name, to_us(now), n, most) for name in names]


def _head(session: ReadSession, name: str, now: int, n: int, most: int) -> QueueHead:
    row = session.one(QUEUE_TIME, name)
    if row is None:
        return QueueHead(name)
    head = _QueueAt(session, name, row[0], now, most)
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

    def __init__(self, session: ReadSession, name: str, at: int, now: int, most: int) -> None:
        self._session, self._name, self._at, self._now, self._most = session, name, at, now, most
        self._early = self._between(LEASED, most) if now < at else []

    def _between(self, state: int, count: int) -> list[DueJob]:
        after, until = sorted((self._at, self._now))
        return [DueJob(*row) for row in self._session.all(DUE, state, self._name, after, until, count)]

    def is_early_for_many(self) -> bool:
        """Whether many stand in line that are not ready at this earlier moment: all would have to be passed over."""
        if self._now >= self._at:
            return False
        return len(self._early) + len(self._between(WAITING, self._most)) >= self._most

    def oldest(self) -> int | bool | None:
        """Since when the oldest waits; None: none does; False: not known."""
        given = {"queue": self._name, "now": self._now, "looks": self._most}
        in_line, scanned = self._session.execute(OLDEST_IN_LINE, given).fetchall()[0]
        if scanned >= self._most:
            return False
        found = [in_line] if in_line is not None else []
        if self._now > self._at:
            found += [job.moment for job in self._between(LEASED, 1)]  # since the end of the lease
            for count in (FEW, self._most):
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
            scheduled, expired = self._between(WAITING, self._most), self._between(LEASED, self._most)
            if len(scheduled) + len(expired) >= self._most:
                return None
            for job in sorted(scheduled):  # by num, as move_clock does
                joining.setdefault(job.group, []).append(job.place(job.time))
            for job in sorted(expired):
                joining.setdefault(job.group, []).append(job.place(job.moment))
            freed.update(job.group for job in expired)
        ungrouped = [*self._session.all(READY, self._name, None, self._now, n), *joining.pop(None, [])]
        groups, is_behind = [], self._now < self._at  # then groups in line may have no member that is ready
        turns = self._turns(self._most if is_behind else n + len(freed), joining)
        if is_behind and len(turns) >= self._most:
            return None
        for group, room in turns:
            capacity = min(n, room + freed[group])
            if capacity > 0:
                members = self._session.all(READY, self._name, group, self._now, capacity)
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
