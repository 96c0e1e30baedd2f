"""The few transitions of which every call is made, and a queue's way through time.

`lined` of a job says whether it stands in its line, seen from the moment `at` of its queue: a waiting job without
`moment`, or with one that is not after `at`; a leased one whose `moment` is not after `at`, that is, expired. `move`
brings a queue to another moment, either way: workers' clocks differ, and moving back undoes exactly what moving on
did. A leased job that is not lined holds a slot of its group.

Transitions change a loaded `Job`; whoever loaded it saves it.
"""

from __future__ import annotations

from collections import Counter

from taskharbor.drivers.sqlite import flows
from taskharbor.drivers.sqlite.damage import damaged
from taskharbor.drivers.sqlite.job import DLQ, WAITING, Job, is_moment
from taskharbor.drivers.sqlite.sql import statement
from taskharbor.drivers.sqlite.tx import Queue, Tx

DUE = statement("move_due")
EXPIRE = statement("move_expired")
NOT_DUE = statement("move_back_due")
NOT_EXPIRED = statement("move_back_expired")
DELETE = "DELETE FROM taskharbor_jobs WHERE num = ?"


def move(tx: Tx, queue: Queue, now: int) -> None:
    """Stand at this moment, if anything changes by it."""
    at = queue.at
    if now > at:
        came = tx.all(DUE, queue.name, at, now)
        expired = tx.all(EXPIRE, queue.name, at, now)
        _note(tx, queue, now, came, expired, -1)
    elif now < at:
        left = tx.all(NOT_DUE, queue.name, now, at)
        held = tx.all(NOT_EXPIRED, queue.name, now, at)
        _note(tx, queue, now, left, held, 1)


def _note(
    tx: Tx, queue: Queue, now: int, scheduled: list[tuple[str | None]], leased: list[tuple[str | None]], slots: int
) -> None:
    if not scheduled and not leased:
        return
    queue.at, queue.dirty = now, True
    for (group,) in scheduled:
        if group is not None:
            tx.touch_group(queue.name, group)
    for group, count in Counter(group for (group,) in leased if group is not None).items():
        tx.touch_group(queue.name, group, slots * count)


def leave(tx: Tx, job: Job) -> None:
    """Out of whatever it stands in: its line, its lease and the slot that comes with it."""
    if job.grp is not None:
        if job.lined:
            tx.touch_group(job.queue, job.grp)
        elif job.token:
            tx.touch_group(job.queue, job.grp, -1)
    job.lined = 0
    job.moment = None
    job.token = job.worker = ""


def join(tx: Tx, job: Job, now: int, arrival: int | None = None) -> None:
    """Into the line, from wherever it stands; or it waits for its `run_at`."""
    leave(tx, job)
    line_up(tx, job, now, tx.next_number() if arrival is None else arrival)


def line_up(tx: Tx, job: Job, now: int, arrival: int) -> None:
    """A job of no standing may run from its `run_at` on."""
    job.state = WAITING
    job.arrival = arrival
    job.moment = run_at = job.run_at if is_moment(job.run_at) else None
    job.time = now if run_at is None else max(run_at, now)
    job.lined = int(run_at is None or run_at <= tx.queue(job.queue).at)
    if run_at is None or run_at <= now:
        tx.arrive(job.queue)
    if job.lined and job.grp is not None:
        tx.touch_group(job.queue, job.grp)


def finish(tx: Tx, job: Job, state: int, now: int) -> None:
    """To a terminal state, from whatever is not finished. Saves it."""
    leave(tx, job)
    job.state = state
    job.finished_at = now
    tx.save(job)
    if state != DLQ:
        flows.close(tx, job)


def remove(tx: Tx, job: Job) -> None:
    """Forget a job altogether."""
    leave(tx, job)
    if not job.finished:
        flows.close(tx, job)
    flows.forget(tx, job)
    tx.number_leaves(job.num)
    tx.execute(DELETE, (job.num,))


def set_aside(tx: Tx, job: Job, now: int) -> None:
    """A record that no worker can run goes to the dead letter queue, and says why."""
    job.reason = damaged([getattr(job, name) for name in Job.__struct_fields__])
    finish(tx, job, DLQ, now)
