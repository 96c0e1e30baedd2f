"""What people and upkeep do with jobs: requeue, cancel, delete, amend, prune, pause; and the heartbeats of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from taskharbor.drivers import refusals
from taskharbor.drivers.base import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_FORGOTTEN_AFTER
from taskharbor.drivers.slices import MAX_CHANGED_JOBS
from taskharbor.drivers.sqlite.cascade import follow, go_on
from taskharbor.drivers.sqlite.damage import is_number
from taskharbor.drivers.sqlite.records import (
    CANCELLED,
    DONE,
    LEASED,
    WAITING,
    JobRow,
    is_moment,
    maybe_us,
    metadata_json,
    state_at,
)
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import block_or_join, finish, forget_steps, leave, line_up, remove
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend, check_moment, check_name
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import Seen, State, WorkerInfo
from taskharbor.model.times import MICROSECOND, from_us, to_us

PRUNABLE = statement("prunable")
KEPT = statement("kept")
ANY_KEPT = (
    "SELECT 1 FROM taskharbor_jobs INDEXED BY taskharbor_jobs_kept "
    "WHERE keep_for IS NOT NULL AND finished_at IS NOT NULL LIMIT 1"
)
MAX_PRUNE_SCAN_JOBS = 5_000  # finished jobs of a queue that one prune reads: some 20 ms with the write lock
BEAT = statement("beat")
UNFINISHED_OF_FLOW = (
    "SELECT id FROM taskharbor_jobs WHERE flow_id = ? AND id > ? AND state IN (0, 1, 2) ORDER BY id LIMIT ?"
)

_encode = msgspec.json.Encoder().encode


def _for_each(
    session: WriteSession,
    ids: Sequence[str],
    act: Callable[[JobRow], DriverError | None],
    seen: Sequence[Seen] | None,
) -> list[DriverError | None]:
    """Apply `act` to each job that is as it was seen; an unknown id yields JobNotFound."""
    results: list[DriverError | None] = []
    for id, was in refusals.paired(ids, seen):
        job = session.load(id)
        if job is None:
            results.append(refusals.no_job(id))
        elif was is not None and _seen_of(job) != was:
            results.append(refusals.changed_since(id))
        else:
            results.append(act(job))
    return results


def _seen_of(job: JobRow) -> Seen:
    """What a reader has seen of a job as it is now; of a damaged one, what reading.py shows."""
    return Seen(
        job.deliveries if is_number(job.deliveries) else 0,
        job.edits if job.edits is not None and is_number(job.edits) else 0,
        from_us(job.finished_at) if job.finished_at is not None and is_moment(job.finished_at) else None,
    )


def requeue(
    session: WriteSession,
    ids: Sequence[str],
    now: datetime,
    run_at: datetime | None,
    reset_attempts: bool,
    seen: Sequence[Seen] | None = None,
) -> list[DriverError | None]:
    """Run dead and cancelled jobs again."""
    moment = to_us(now)
    requeued: list[JobRow] = []
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(job: JobRow) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is not State.DLQ and state is not State.CANCELLED:
            return refusals.wrong_state(job.id, state, "requeue")
        job.lost, job.run_at, job.note = 0, maybe_us(run_at), None
        if reset_attempts:
            job.attempts = 0
        if job.flow_id is not None:
            session.execute("UPDATE taskharbor_flows SET cancelled = 0 WHERE id = ?", (job.flow_id,))
        block_or_join(session, job, moment)
        requeued.append(job)
        return None

    results = _for_each(session, ids, act, seen)
    follow(session, requeued, moment)
    return results


def cancel(
    session: WriteSession, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
) -> list[DriverError | None]:
    """Cancel jobs that are not terminal, and what can no longer run then; one that is cancelled stays so."""
    moment = to_us(now)
    cancelled: list[JobRow] = []

    def act(job: JobRow) -> DriverError | None:
        state = state_at(job.state, job.moment, moment)
        if state is State.CANCELLED:
            return None
        if state is State.DONE or state is State.DLQ:
            return refusals.wrong_state(job.id, state, "cancel")
        job.reason = CANCELLED_REASON
        finish(session, job, CANCELLED, moment)
        cancelled.append(job)
        return None

    results = _for_each(session, ids, act, seen)
    follow(session, cancelled, moment)
    return results


def cancel_flow(session: WriteSession, flow_id: str, after: str, now: datetime) -> tuple[int, str | None]:
    """Cancel a slice of what is not terminal in a flow: jobs behind an id. With the first slice the flow is flagged,
    so that what is enqueued into it later is cancelled. Returns how many were cancelled, and behind which id to go on;
    None: that was all."""
    if not after and not session.do("UPDATE taskharbor_flows SET cancelled = 1 WHERE id = ?", flow_id):
        return 0, None
    unfinished = [id for (id,) in session.all(UNFINISHED_OF_FLOW, flow_id, after, MAX_CHANGED_JOBS)]
    for id in unfinished:
        if (job := session.load(id)) is not None:
            job.reason = FLOW_CANCELLED_REASON
            finish(session, job, CANCELLED, to_us(now))
    return len(unfinished), unfinished[-1] if len(unfinished) == MAX_CHANGED_JOBS else None


def delete(session: WriteSession, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
    """Delete jobs that no unfinished job depends on."""

    def act(job: JobRow) -> DriverError | None:
        if job.holds:
            return refusals.still_needed(job.id, job.holds)
        remove(session, job)
        return None

    return _for_each(session, ids, act, seen)


# (queue, state, statement) → where the next prune goes on
PrunePlaces: TypeAlias = dict[tuple[str, int, str], tuple[int, int]]


def prune(session: WriteSession, before: datetime, limit: int, places: PrunePlaces, retention: timedelta) -> int:
    """Let follow what has to (cascade.py), then delete finished jobs, the oldest of each queue first; what something
    unfinished needs stays. A job that is kept for a time of its own stays until that is over at `before + retention`.

    A flow that is still open may have hundreds of thousands of finished jobs. So no call reads more than
    MAX_PRUNE_SCAN_JOBS of a queue: the next call goes on where this one stopped, and starts over after the last job.
    """
    moment = to_us(before)
    span = {"before": moment, "present": moment + retention // MICROSECOND}
    deleted = go_on(session, span["present"], limit)
    which = (PRUNABLE, KEPT) if session.one(ANY_KEPT) else (PRUNABLE,)
    for (name,) in session.all("SELECT name FROM taskharbor_queues"):
        deleted_before = deleted
        for state in (DONE, CANCELLED):
            for sql in which:
                jobs = _prunable(session, (name, state, sql), span, limit - deleted, places)
                for job in jobs:
                    remove(session, job)
                deleted += len(jobs)
        if deleted > deleted_before:
            session.forget_queue(name)
    return deleted


def _prunable(
    session: WriteSession,
    walk: tuple[str, int, str],
    span: dict[str, int],
    limit: int,
    places: PrunePlaces,
) -> list[JobRow]:
    """Up to `limit` jobs that nothing needs, from the place where the last call stopped."""
    queue, state, sql = walk
    jobs: list[JobRow] = []
    if limit <= 0:
        return jobs
    ended, num = places.pop(walk, (-1, -1))
    rows = session.execute(sql, {"state": state, "queue": queue, **span, "ended": ended, "num": num})
    for scanned, (ended, num, needed, *row) in enumerate(rows, 1):
        if not needed:
            jobs.append(JobRow(*row))
        if len(jobs) == limit:
            break
        if scanned == MAX_PRUNE_SCAN_JOBS:
            places[walk] = (ended, num)
            break
    return jobs


def pause(session: WriteSession, name: str) -> None:
    """Hand out no jobs of a queue, which need not exist yet."""
    check_name(name, "queue")
    queue = session.queue(name)
    queue.paused, queue.changed = 1, True


def resume(session: WriteSession, name: str) -> None:
    """End a pause."""
    queue = session.known_queue(name)
    if queue is not None and queue.paused:
        queue.paused, queue.changed = 0, True
        session.note_arrival(name)


def beat(session: WriteSession, worker: WorkerInfo, now: datetime) -> None:
    """Record a heartbeat, and forget workers that have been silent for long."""
    check_name(worker.worker, "worker")
    seen = msgspec.structs.replace(worker, seen_at=now)
    session.execute(BEAT, (worker.worker, to_us(now), _encode(seen).decode()))
    session.execute("DELETE FROM taskharbor_workers WHERE seen_at <= ?", (to_us(now - WORKER_FORGOTTEN_AFTER),))


# Amendments: changes of stored jobs that are neither under a lease nor done


def amend(
    session: WriteSession, changes: Sequence[Amend], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Change jobs, each on its own; a refused one has its error in its place."""
    return [_amend_one(session, change, to_us(now), max_payload) for change in changes]


def _amend_one(session: WriteSession, change: Amend, now: int, max_payload: int) -> TaskHarborError | None:
    try:
        check_amend(change, max_payload)
    except InvalidJob as invalid:
        return invalid
    job = session.load(change.id)
    if job is None:
        return refusals.no_job(change.id)
    if job.state == DONE or job.state == LEASED:  # also under a lease that is over: its worker may still run
        return refusals.not_amendable(job.id, "done" if job.state == DONE else "under a lease")
    seen = _seen_of(job)
    if (seen.deliveries, seen.edits) != (change.deliveries, change.edits):
        return refusals.amended_since(job.id)
    _apply(session, job, change.changes(), seen.edits + 1, now)
    return None


def _apply(session: WriteSession, job: JobRow, changes: dict[str, Any], edits: int, now: int) -> None:
    values: dict[str, Any] = {name: _stored(value) for name, value in changes.items()}
    if "priority" in changes:
        values["rank"] = 0 if job.grp is not None else -changes["priority"]
    if "payload" in changes and job.memos:  # what was done for the old one
        forget_steps(session, job.num)
        values["memos"] = None
    columns = ", ".join(f"{column} = :{column}" for column in values)
    session.execute(
        f"UPDATE taskharbor_jobs SET {columns}, edits = :edits WHERE num = :num",
        {**values, "edits": edits, "num": job.num},
    )
    if job.state == WAITING and not changes.keys().isdisjoint({"run_at", "priority"}):
        for column in values.keys() & {"run_at", "last_error", "reason", "trail", "note"}:  # which `save` writes
            setattr(job, column, values[column])
        lost_at = job.lost_at
        leave(session, job)
        job.lost_at = lost_at  # if an execution was lost, it is still the one before the next
        line_up(session, job, now, session.next_number())
        session.save(job)


def _stored(value: Any) -> Any:
    """A field of a record as its column holds it."""
    if isinstance(value, datetime):
        return maybe_us(value)
    if isinstance(value, timedelta):
        return value // MICROSECOND
    if isinstance(value, dict):
        return metadata_json(value)
    return value
