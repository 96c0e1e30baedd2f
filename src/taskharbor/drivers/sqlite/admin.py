"""Deciding over jobs, and noting workers. Nothing here is on a worker's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from taskharbor.drivers.contract import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_SILENCE
from taskharbor.drivers.sqlite import flows
from taskharbor.drivers.sqlite.job import BLOCKED, CANCELLED, DONE, Job, maybe_ticks, state_at, ticks
from taskharbor.drivers.sqlite.sql import statement
from taskharbor.drivers.sqlite.store import finish, join, leave, remove
from taskharbor.drivers.sqlite.tx import Tx
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import State, WorkerInfo

PRUNABLE = statement("prunable")
LOOKED = 5_000  # finished jobs of a queue that one prune looks at: some 20 ms with the write lock
BEAT = statement("beat")
RUNNING = "SELECT id FROM taskharbor_jobs WHERE flow_id = ? AND state IN (0, 1, 2) ORDER BY num"

_REMEMBERED = 10 * WORKER_SILENCE  # a worker with a slow clock must not be forgotten by one with a fast clock
_encode = msgspec.json.Encoder().encode


def each(tx: Tx, ids: Sequence[str], act: Callable[[Job], DriverError | None]) -> list[DriverError | None]:
    """The same for each job, one after the other; an unknown one is answered for."""
    answers: list[DriverError | None] = []
    for id in ids:
        job = tx.load(id)
        answers.append(JobNotFound(f"no job {id}") if job is None else act(job))
    return answers


def requeue(
    tx: Tx, ids: Sequence[str], now: datetime, run_at: datetime | None, reset_attempts: bool
) -> list[DriverError | None]:
    moment = ticks(now)
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(job: Job) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is not State.DLQ and state is not State.CANCELLED:
            return WrongState(f"job {job.id} is {state}; requeue takes dlq and cancelled")
        was_finished = job.finished
        leave(tx, job)
        job.state, job.reason, job.finished_at, job.lost, job.run_at = BLOCKED, "", None, 0, maybe_ticks(run_at)
        if reset_attempts:
            job.attempts = 0
        if job.flow_id is not None:
            tx.execute("UPDATE taskharbor_flows SET cancelled = 0 WHERE id = ?", (job.flow_id,))
        if was_finished:
            flows.reopen(tx, job)
        else:
            flows.hold(tx, job)
        if not flows.is_open(tx, job):
            join(tx, job, moment)
        tx.save(job)
        return None

    return each(tx, ids, act)


def cancel(tx: Tx, ids: Sequence[str], now: datetime, reason: str = CANCELLED_REASON) -> list[DriverError | None]:
    moment = ticks(now)

    def act(job: Job) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is State.CANCELLED:
            return None
        if state is State.DONE or state is State.DLQ:
            return WrongState(f"job {job.id} is {state}; cancel takes what is not terminal")
        job.reason = reason
        finish(tx, job, CANCELLED, moment)
        return None

    return each(tx, ids, act)


def cancel_flow(tx: Tx, flow_id: str, now: datetime) -> int:
    if not tx.do("UPDATE taskharbor_flows SET cancelled = 1 WHERE id = ?", flow_id):
        return 0
    running = [id for (id,) in tx.all(RUNNING, flow_id)]
    cancel(tx, running, now, FLOW_CANCELLED_REASON)
    return len(running)


def delete(tx: Tx, ids: Sequence[str]) -> list[DriverError | None]:
    def act(job: Job) -> DriverError | None:
        if job.holds:
            return WrongState(f"job {job.id} is needed: {job.holds} unfinished job(s) depend on it")
        remove(tx, job)
        return None

    return each(tx, ids, act)


Places: TypeAlias = dict[tuple[str, int], tuple[int, int]]  # queue and state → where the next prune goes on


def prune(tx: Tx, before: datetime, limit: int, places: Places) -> int:
    """Queue by queue, the oldest first; what something unfinished needs stays.

    A run that is open may hold hundreds of thousands of finished jobs. So no call looks at more than LOOKED of them in
    a queue: the next one goes on where this one stopped, and begins anew after the last.
    """
    moment, gone = ticks(before), 0
    for (name,) in tx.all("SELECT name FROM taskharbor_queues"):
        before_this = gone
        for state in (DONE, CANCELLED):
            jobs = _prunable(tx, name, state, moment, limit - gone, places)
            for job in jobs:
                remove(tx, job)
            gone += len(jobs)
        if gone > before_this:
            tx.forget_queue(name)
    return gone


def _prunable(tx: Tx, queue: str, state: int, before: int, limit: int, places: Places) -> list[Job]:
    """Up to `limit` jobs that nothing needs, from the place where the last call stopped."""
    found: list[Job] = []
    if limit <= 0:
        return found
    finished_at, num = places.pop((queue, state), (-1, -1))
    rows = tx.execute(PRUNABLE, (state, queue, before, finished_at, num))
    for looked, (finished_at, num, needed, *row) in enumerate(rows, 1):
        if not needed:
            found.append(Job(*row))
        if len(found) == limit:
            break
        if looked == LOOKED:
            places[queue, state] = (finished_at, num)
            break
    return found


def pause(tx: Tx, name: str) -> None:
    check_name(name, "queue")
    queue = tx.queue(name)
    queue.paused, queue.dirty = 1, True


def resume(tx: Tx, name: str) -> None:
    queue = tx.known_queue(name)
    if queue is not None and queue.paused:
        queue.paused, queue.dirty = 0, True
        tx.arrive(name)


def beat(tx: Tx, worker: WorkerInfo, now: datetime) -> None:
    check_name(worker.worker, "worker")
    heard = msgspec.structs.replace(worker, seen_at=now)
    tx.execute(BEAT, (worker.worker, ticks(now), _encode(heard).decode()))
    tx.execute("DELETE FROM taskharbor_workers WHERE seen_at <= ?", (ticks(now - _REMEMBERED),))
