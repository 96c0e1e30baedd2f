"""Reading jobs, queues, flows, results, workers and figures. Nothing here writes except `add_figures`, and no damaged
record makes a read fail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from taskharbor.drivers.base import FIGURES_KEPT_FOR, WORKER_SILENCE
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.queries import check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.drivers.sqlite.damage import readable_record
from taskharbor.drivers.sqlite.records import DONE, LAST_MICROSECOND, LEASED, JobRow, ids_json, is_moment, state_at
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import COLUMNS, statement
from taskharbor.drivers.sqlite.transitions import last_in_place
from taskharbor.model.bounds import check_figures
from taskharbor.model.job import Figures, FlowInfo, JobInfo, State, WorkerInfo, replace
from taskharbor.model.times import from_us, to_us

COUNTS = statement("counts")
COUNTS_TO_CAP = statement("counts_to_cap")
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

_worker = msgspec.json.Decoder(WorkerInfo).decode

_COUNTED = ("inflight", "scheduled", "ready", "blocked", "done", "dlq", "cancelled")  # as counts_to_cap.sql has them


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
    if cap is not None:
        return _counts_to_cap(session, to_us(now), cap)
    session.execute(COUNTS, {"now": to_us(now)})
    counted: dict[str, dict[str, int]] = {}
    for queue, state, number in session.fetchall():
        states = counted.setdefault(queue, {})
        states[state] = states.get(state, 0) + number
    return counted


def _counts_to_cap(session: ReadSession, now: int, cap: int) -> dict[str, dict[str, int]]:
    cap = min(cap, 2**62)  # SQLite holds no number beyond 63 bits
    session.execute(COUNTS_TO_CAP, {"now": now, "cap": cap})
    counted = {}
    for queue, *numbers in session.fetchall():
        found = {state: min(number, cap) for state, number in zip(_COUNTED, numbers, strict=True) if number}
        if found:
            counted[queue] = found
    return counted


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
