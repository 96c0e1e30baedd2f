"""The few transitions of which every call is made, and a queue's way through time.

`lined` of a job says whether it stands in its line, seen from the moment `at` of its queue: a waiting job without
`moment`, or with one that is not after `at`; a leased one whose `moment` is not after `at`, that is, expired. `move`
brings a queue to another moment, either way: workers' clocks differ, and moving back undoes exactly what moving on
did. A leased job that is not lined holds a slot of its group.

Transitions change a loaded `JobRow`; whoever loaded it saves it.
"""

from __future__ import annotations

from collections import Counter

from taskharbor.drivers.sqlite import edges
from taskharbor.drivers.sqlite.damage import damaged
from taskharbor.drivers.sqlite.records import DLQ, WAITING, JobRow, is_moment
from taskharbor.drivers.sqlite.session import Queue, WriteSession
from taskharbor.drivers.sqlite.statements import statement

DUE = statement("move_due")
EXPIRE = statement("move_expired")
NOT_DUE = statement("move_back_due")
NOT_EXPIRED = statement("move_back_expired")
DELETE = "DELETE FROM taskharbor_jobs WHERE num = ?"


def move(session: WriteSession, queue: Queue, now: int) -> None:
    """Stand at this moment, if anything changes by it."""
    at = queue.at
    if now > at:
        came = session.all(DUE, queue.name, at, now)
        expired = session.all(EXPIRE, queue.name, at, now)
        _note(session, queue, now, came, expired, -1)
    elif now < at:
        left = session.all(NOT_DUE, queue.name, now, at)
        held = session.all(NOT_EXPIRED, queue.name, now, at)
        _note(session, queue, now, left, held, 1)


def _note(
    session: WriteSession,
    queue: Queue,
    now: int,
    scheduled: list[tuple[str | None]],
    leased: list[tuple[str | None]],
    slots: int,
) -> None:
    if not scheduled and not leased:
        return
    queue.at, queue.dirty = now, True
    for (group,) in scheduled:
        if group is not None:
            session.touch_group(queue.name, group)
    for group, count in Counter(group for (group,) in leased if group is not None).items():
        session.touch_group(queue.name, group, slots * count)


def leave(session: WriteSession, job: JobRow) -> None:
    """Out of whatever it stands in: its line, its lease and the slot that comes with it."""
    if job.grp is not None:
        if job.lined:
            session.touch_group(job.queue, job.grp)
        elif job.token:
            session.touch_group(job.queue, job.grp, -1)
    job.lined = 0
    job.moment = None
    job.token = job.worker = ""


def join(session: WriteSession, job: JobRow, now: int, arrival: int | None = None) -> None:
    """Into the line, from wherever it stands; or it waits for its `run_at`."""
    leave(session, job)
    line_up(session, job, now, session.next_number() if arrival is None else arrival)


def line_up(session: WriteSession, job: JobRow, now: int, arrival: int) -> None:
    """A job of no standing may run from its `run_at` on."""
    job.state = WAITING
    job.arrival = arrival
    job.moment = run_at = job.run_at if is_moment(job.run_at) else None
    job.time = now if run_at is None else max(run_at, now)
    job.lined = int(run_at is None or run_at <= session.queue(job.queue).at)
    if run_at is None or run_at <= now:
        session.arrive(job.queue)
    if job.lined and job.grp is not None:
        session.touch_group(job.queue, job.grp)


def finish(session: WriteSession, job: JobRow, state: int, now: int) -> None:
    """To a terminal state, from whatever is not finished. Saves it."""
    leave(session, job)
    job.state = state
    job.finished_at = now
    session.save(job)
    if state != DLQ:
        edges.close(session, job)


def remove(session: WriteSession, job: JobRow) -> None:
    """Forget a job altogether."""
    leave(session, job)
    if not job.finished:
        edges.close(session, job)
    edges.forget(session, job)
    session.number_leaves(job.num)
    session.execute(DELETE, (job.num,))


def set_aside(session: WriteSession, job: JobRow, now: int) -> None:
    """A record that no worker can run goes to the dead letter queue, and says why."""
    job.reason = damaged([getattr(job, name) for name in JobRow.__struct_fields__])
    finish(session, job, DLQ, now)
