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

import json

from taskharbor.drivers.damage import damaged_reason
from taskharbor.drivers.sqlite.damage import damage_of
from taskharbor.drivers.sqlite.records import BLOCKED, COLUMNS, DLQ, DONE, LEASED, WAITING, JobRow, ids_json, is_moment
from taskharbor.drivers.sqlite.session import QueueRow, ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement

MOVE_CLOCK = statement("move_clock")
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
CLOSE_EDGES = statement("close_edges")
RELEASED = statement("released")
BY_NUM = f"SELECT {COLUMNS} FROM taskharbor_jobs WHERE num = ?"
DEPENDENTS = statement("dependents")
EDGE = "SELECT unfinished FROM taskharbor_edges WHERE dependency = ? AND dependent = ?"
HANDED_TO = "SELECT handed_to FROM taskharbor_jobs WHERE id = ?"


# Time


def move_clock(session: WriteSession, queue: QueueRow, now: int) -> None:
    """Set the time of a queue (`at`) to `now`, and bring `lined` of its jobs up to date, if that changes any."""
    after, until = sorted((queue.at, now))
    moves_on = now == until
    given = {"queue": queue.name, "after": after, "until": until, "lined": moves_on}
    moved = session.execute(MOVE_CLOCK, given).fetchall()
    if moved:
        queue.at, queue.changed = now, True
    # Sorted, because groups get their turns in this order and an UPDATE promises none; reading.py counts on it.
    for state, _, group in sorted(moved):
        if group is not None:
            inflight = (-1 if moves_on else 1) if state == LEASED else 0
            session.touch_group(queue.name, group, inflight)


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


def block_or_join(session: WriteSession, job: JobRow, now: int) -> None:
    """A terminal job is to run again: its flow and its dependencies count it as unfinished. Saves it."""
    was_finished = job.finished
    leave(session, job)
    job.state, job.reason, job.finished_at = BLOCKED, "", None
    if was_finished and job.flow_id is not None:
        session.execute(FLOW_OPEN, (1, job.flow_id))
    hold_dependencies(session, job)
    if not has_open_dependency(session, job):
        join(session, job, now)
    session.save(job)


def remove(session: WriteSession, job: JobRow) -> None:
    """Delete a job with its edges, and its flow's row with the last job of the flow."""
    leave(session, job)
    if not job.finished:
        _close(session, job)
    session.execute(FORGET_EDGES, {"num": job.num})
    if job.memos:
        forget_steps(session, job.num)
    if job.flow_id is not None:
        session.execute(FLOW_LEAVE, (job.flow_id,))
        session.execute(FLOW_FORGET, (job.flow_id,))
    session.number_is_leaving(job.num)
    session.execute(DELETE, (job.num,))


def forget_steps(session: WriteSession, num: int) -> None:
    """Delete the memos of a job."""
    session.execute("DELETE FROM taskharbor_steps WHERE num = ?", (num,))


def set_aside(session: WriteSession, job: JobRow, now: int) -> None:
    """Move a record that no worker can run to the dead letter queue, with the reason. Saves it."""
    job.reason = damaged_reason(damage_of(job) or "")
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


# Jobs that depend on others: releasing them, and handing them over to an heir


def last_in_place(session: ReadSession, id: str) -> str | None:
    """The job that has the place of this one now, over however many handovers, as far as its heirs still exist."""
    last = None
    following: str | None = id
    while following is not None and (row := session.one(HANDED_TO, following)) is not None:
        last, following = following, row[0]
    return last


def dependents_of(session: WriteSession, job: JobRow) -> list[JobRow]:
    """The jobs that name it in their `depends_on`, in the order in which they were stored."""
    return [JobRow(*row) for row in session.all(DEPENDENTS, job.num)]


def release_dependents(session: WriteSession, job: JobRow, now: int) -> None:
    """The job is done: dependents that wait for nothing else join the line, in the order in which they were stored."""
    if closed := session.do(CLOSE_EDGES, job.num):
        session.check_size(closed)
        for (num,) in session.all(RELEASED, job.num):
            dependent = JobRow(*session.one(BY_NUM, num))
            join(session, dependent, now)
            session.save(dependent)


def hand_over(session: WriteSession, old: JobRow, dependents: list[JobRow], new: JobRow, now: int) -> None:
    """`new` takes the place of `old` in the `depends_on` of these dependents."""
    for dependent in dependents:
        edge = session.one(EDGE, old.num, dependent.num)
        session.execute("DELETE FROM taskharbor_edges WHERE dependency = ? AND dependent = ?", (old.num, dependent.num))
        if edge[0]:
            session.execute("UPDATE taskharbor_jobs SET holds = holds - 1 WHERE num = ?", (old.num,))
        ids = [new.id if id == old.id else id for id in json.loads(dependent.depends_on or "[]")]
        dependent.depends_on = ids_json(ids)
        session.execute(
            "UPDATE taskharbor_jobs SET depends_on = ? WHERE num = ?", (dependent.depends_on, dependent.num)
        )
        _add_edge(session, new, dependent)
        if dependent.state == BLOCKED and not has_open_dependency(session, dependent):
            join(session, dependent, now)
            session.save(dependent)


def _add_edge(session: WriteSession, new: JobRow, dependent: JobRow) -> None:
    """An edge from the heir, unless the dependent named it already."""
    known = session.one(EDGE, new.num, dependent.num)
    unfinished = not dependent.finished
    if known is None:
        edge = (new.num, dependent.num, int(unfinished), int(new.state != DONE))
        session.execute("INSERT INTO taskharbor_edges VALUES (?, ?, ?, ?)", edge)
    elif unfinished:
        session.execute(
            "UPDATE taskharbor_edges SET unfinished = 1 WHERE dependency = ? AND dependent = ?",
            (new.num, dependent.num),
        )
    if unfinished and not (known and known[0]):
        session.execute("UPDATE taskharbor_jobs SET holds = holds + 1 WHERE num = ?", (new.num,))
