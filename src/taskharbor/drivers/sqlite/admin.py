"""Deciding over jobs, and noting workers. Nothing here is on a worker's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from taskharbor.drivers.contract import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_SILENCE
from taskharbor.drivers.sqlite import edges
from taskharbor.drivers.sqlite.records import BLOCKED, CANCELLED, DONE, JobRow, maybe_ticks, state_at, ticks
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import finish, join, leave, remove
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import State, WorkerInfo

PRUNABLE = statement("prunable")
LOOKED = 5_000  # finished jobs of a queue that one prune looks at: some 20 ms with the write lock
BEAT = statement("beat")
RUNNING = "SELECT id FROM taskharbor_jobs WHERE flow_id = ? AND state IN (0, 1, 2) ORDER BY num"

_REMEMBERED = 10 * WORKER_SILENCE  # a worker with a slow clock must not be forgotten by one with a fast clock
_encode = msgspec.json.Encoder().encode


def each(
    session: WriteSession, ids: Sequence[str], act: Callable[[JobRow], DriverError | None]
) -> list[DriverError | None]:
    """The same for each job, one after the other; an unknown one is answered for."""
    answers: list[DriverError | None] = []
    for id in ids:
        job = session.load(id)
        answers.append(JobNotFound(f"no job {id}") if job is None else act(job))
    return answers


def requeue(
    session: WriteSession, ids: Sequence[str], now: datetime, run_at: datetime | None, reset_attempts: bool
) -> list[DriverError | None]:
    moment = ticks(now)
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(job: JobRow) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is not State.DLQ and state is not State.CANCELLED:
            return WrongState(f"job {job.id} is {state}; requeue takes dlq and cancelled")
        was_finished = job.finished
        leave(session, job)
        job.state, job.reason, job.finished_at, job.lost, job.run_at = BLOCKED, "", None, 0, maybe_ticks(run_at)
        if reset_attempts:
            job.attempts = 0
        if job.flow_id is not None:
            session.execute("UPDATE taskharbor_flows SET cancelled = 0 WHERE id = ?", (job.flow_id,))
        if was_finished:
            edges.reopen(session, job)
        else:
            edges.hold(session, job)
        if not edges.is_open(session, job):
            join(session, job, moment)
        session.save(job)
        return None

    return each(session, ids, act)


def cancel(
    session: WriteSession, ids: Sequence[str], now: datetime, reason: str = CANCELLED_REASON
) -> list[DriverError | None]:
    moment = ticks(now)

    def act(job: JobRow) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is State.CANCELLED:
            return None
        if state is State.DONE or state is State.DLQ:
            return WrongState(f"job {job.id} is {state}; cancel takes what is not terminal")
        job.reason = reason
        finish(session, job, CANCELLED, moment)
        return None

    return each(session, ids, act)


def cancel_flow(session: WriteSession, flow_id: str, now: datetime) -> int:
    if not session.do("UPDATE taskharbor_flows SET cancelled = 1 WHERE id = ?", flow_id):
        return 0
    running = [id for (id,) in session.all(RUNNING, flow_id)]
    cancel(session, running, now, FLOW_CANCELLED_REASON)
    return len(running)


def delete(session: WriteSession, ids: Sequence[str]) -> list[DriverError | None]:
    def act(job: JobRow) -> DriverError | None:
        if job.holds:
            return WrongState(f"job {job.id} is needed: {job.holds} unfinished job(s) depend on it")
        remove(session, job)
        return None

    return each(session, ids, act)


Places: TypeAlias = dict[tuple[str, int], tuple[int, int]]  # queue and state → where the next prune goes on


def prune(session: WriteSession, before: datetime, limit: int, places: Places) -> int:
    """Queue by queue, the oldest first; what something unfinished needs stays.

    A run that is open may hold hundreds of thousands of finished jobs. So no call looks at more than LOOKED of them in
    a queue: the next one goes on where this one stopped, and begins anew after the last.
    """
    moment, gone = ticks(before), 0
    for (name,) in session.all("SELECT name FROM taskharbor_queues"):
        before_this = gone
        for state in (DONE, CANCELLED):
            jobs = _prunable(session, name, state, moment, limit - gone, places)
            for job in jobs:
                remove(session, job)
            gone += len(jobs)
        if gone > before_this:
            session.forget_queue(name)
    return gone


def _prunable(session: WriteSession, queue: str, state: int, before: int, limit: int, places: Places) -> list[JobRow]:
    """Up to `limit` jobs that nothing needs, from the place where the last call stopped."""
    found: list[JobRow] = []
    if limit <= 0:
        return found
    finished_at, num = places.pop((queue, state), (-1, -1))
    rows = session.execute(PRUNABLE, (state, queue, before, finished_at, num))
    for looked, (finished_at, num, needed, *row) in enumerate(rows, 1):
        if not needed:
            found.append(JobRow(*row))
        if len(found) == limit:
            break
        if looked == LOOKED:
            places[queue, state] = (finished_at, num)
            break
    return found


def pause(session: WriteSession, name: str) -> None:
    check_name(name, "queue")
    queue = session.queue(name)
    queue.paused, queue.dirty = 1, True


def resume(session: WriteSession, name: str) -> None:
    queue = session.known_queue(name)
    if queue is not None and queue.paused:
        queue.paused, queue.dirty = 0, True
        session.arrive(name)


def beat(session: WriteSession, worker: WorkerInfo, now: datetime) -> None:
    check_name(worker.worker, "worker")
    heard = msgspec.structs.replace(worker, seen_at=now)
    session.execute(BEAT, (worker.worker, ticks(now), _encode(heard).decode()))
    session.execute("DELETE FROM taskharbor_workers WHERE seen_at <= ?", (ticks(now - _REMEMBERED),))
