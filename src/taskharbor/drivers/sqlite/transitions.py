"""The few changes of state of which every call is made: into and out of the line, finished, reopened, removed.

A job is in the line of its queue (`lined` = 1) when a reserve may take it. That depends on the time, so each queue has
the time `at` for which `lined` is true. At that time these are in line: a waiting job without a `moment`, one whose
`moment` (its run_at) has come, and a leased one whose `moment` (the end of its lease) has come: an expired one.
`move_clock` changes `at`, to a later or an earlier time: workers' clocks differ, and moving back undoes exactly what
moving on did. A leased job that is not in line takes a place of its group.

An edge (dependency, dependent) says whether the dependent is unfinished (neither done nor cancelled); `holds` of a job
counts those. It also says whether the dependency is open (not done): a job is blocked while any edge to it is open.
The edges are a set: closing one twice releases nothing.

Transitions change a loaded `JobRow`; the caller saves it, except where a docstring says otherwise.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from taskharbor.drivers.sqlite.damage import damage_reason
from taskharbor.drivers.sqlite.records import DLQ, WAITING, JobRow, ids_json, is_moment
from taskharbor.drivers.sqlite.session import QueueRow, WriteSession
from taskharbor.drivers.sqlite.statements import statement

DUE = statement("move_due")
EXPIRE = statement("move_expired")
NOT_DUE = statement("move_back_due")
NOT_EXPIRED = statement("move_back_expired")
DELETE = "DELETE FROM taskharbor_jobs WHERE num = ?"
HOLD = statement("hold")
LINK = statement("link")
OPEN_DEPENDENCY = "SELECT 1 FROM taskharbor_edges WHERE dependent = ? AND open = 1 LIMIT 1"
UNHOLD = statement("unhold")
DEPENDENT_FINISHED = "UPDATE taskharbor_edges SET unfinished = 0 WHERE dependent = ? AND unfinished = 1"
FORGET_EDGES = "DELETE FROM taskharbor_edges WHERE dependency = :num OR dependent = :num"
FLOW_OPEN = "UPDATE taskharbor_flows SET open = open + ? WHERE id = ?"
FLOW_LEAVE = "UPDATE taskharbor_flows SET members = members - 1 WHERE id = ?"
FLOW_FORGET = "DELETE FROM taskharbor_flows WHERE id = ? AND members <= 0"


# Time


def move_clock(session: WriteSession, queue: QueueRow, now: int) -> None:
    """Set the time of a queue (`at`) to `now`, and bring `lined` of its jobs up to date, if that changes any."""
    at = queue.at
    if now > at:
        due = _by_num(session.all(DUE, queue.name, at, now))
        expired = _by_num(session.all(EXPIRE, queue.name, at, now))
        _note_move(session, queue, now, due, expired, -1)
    elif now < at:
        not_due = session.all(NOT_DUE, queue.name, now, at)
        leased_again = session.all(NOT_EXPIRED, queue.name, now, at)
        _note_move(session, queue, now, not_due, leased_again, 1)


def _by_num(rows: list[tuple[str | None, int]]) -> list[tuple[str | None]]:
    """The groups in a certain order, in which they get their turns: an UPDATE promises none. heads.py counts on it."""
    return [(group,) for group, _ in sorted(rows, key=itemgetter(1))]


def _note_move(
    session: WriteSession,
    queue: QueueRow,
    now: int,
    scheduled: list[tuple[str | None]],
    leased: list[tuple[str | None]],
    inflight: int,
) -> None:
    """`inflight`: what each leased job that moved adds to those inflight in its group."""
    if not scheduled and not leased:
        return
    queue.at, queue.changed = now, True
    for (group,) in scheduled:
        if group is not None:
            session.touch_group(queue.name, group)
    for group, count in Counter(group for (group,) in leased if group is not None).items():
        session.touch_group(queue.name, group, inflight * count)


# The line


def leave(session: WriteSession, job: JobRow) -> None:
    """Out of the line, or out of its lease and the group place that comes with it. `worker` stays: who had it last."""
    if job.grp is not None:
        if job.lined:
            session.touch_group(job.queue, job.grp)
        elif job.token:
            session.touch_group(job.queue, job.grp, -1)
    job.lined = 0
    job.moment = None
    job.token = ""
    job.lost_at = None


def join(session: WriteSession, job: JobRow, now: int, arrival: int | None = None) -> None:
    """Into the line from any state, or scheduled until its `run_at`."""
    leave(session, job)
    line_up(session, job, now, session.next_number() if arrival is None else arrival)


def line_up(session: WriteSession, job: JobRow, now: int, arrival: int) -> None:
    """Place a job that is in no state yet: ready now, or scheduled until its `run_at`."""
    job.state = WAITING
    job.arrival = arrival
    job.moment = run_at = job.run_at if is_moment(job.run_at) else None
    job.time = now if run_at is None else max(run_at, now)
    job.lined = int(run_at is None or run_at <= session.queue(job.queue).at)
    if run_at is None or run_at <= now:
        session.note_arrival(job.queue)
    if job.lined and job.grp is not None:
        session.touch_group(job.queue, job.grp)


# The end


def finish(session: WriteSession, job: JobRow, state: int, now: int) -> None:
    """Into a terminal state. Saves the job."""
    leave(session, job)
    job.state = state
    job.finished_at = now
    session.save(job)
    if state != DLQ:
        _close(session, job)


def reopen(session: WriteSession, job: JobRow, was_finished: bool) -> None:
    """A terminal job is to run again: its flow and its dependencies count it as unfinished."""
    if was_finished and job.flow_id is not None:
        session.execute(FLOW_OPEN, (1, job.flow_id))
    hold_dependencies(session, job)


def remove(session: WriteSession, job: JobRow) -> None:
    """Delete a job with its edges, and its flow's row with the last job of the flow."""
    leave(session, job)
    if not job.finished:
        _close(session, job)
    session.execute(FORGET_EDGES, {"num": job.num})
    if job.flow_id is not None:
        session.execute(FLOW_LEAVE, (job.flow_id,))
        session.execute(FLOW_FORGET, (job.flow_id,))
    session.number_is_leaving(job.num)
    session.execute(DELETE, (job.num,))


def set_aside(session: WriteSession, job: JobRow, now: int) -> None:
    """Move a record that no worker can run to the dead letter queue, with the reason. Saves it."""
    job.reason = damage_reason(job)
    finish(session, job, DLQ, now)


# Edges


def has_open_dependency(session: WriteSession, job: JobRow) -> bool:
    """Whether any of its dependencies is not done."""
    return bool(job.depends_on) and session.one(OPEN_DEPENDENCY, job.num) is not None


def hold_dependencies(session: WriteSession, job: JobRow) -> None:
    """Count an unfinished job with its dependencies, which may not be deleted meanwhile."""
    if job.depends_on:
        named = {"num": job.num, "ids": ids_json(job.dependencies)}
        session.execute(HOLD, named)
        session.execute(LINK, named)


def _close(session: WriteSession, job: JobRow) -> None:
    """It is finished: its flow and its dependencies have one unfinished job less."""
    if job.flow_id is not None:
        session.execute(FLOW_OPEN, (-1, job.flow_id))
    if job.depends_on:
        session.execute(UNHOLD, (job.num,))
        session.execute(DEPENDENT_FINISHED, (job.num,))
