"""What an operator does with jobs and queues. Nothing here is on a worker's way, so it may be slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from taskharbor.drivers import CANCELLED_REASON, FLOW_CANCELLED_REASON, DriverError, Seen, State, WorkerInfo, check_name
from taskharbor.drivers.kit import (
    WORKER_FORGOTTEN_AFTER,
    changed_since,
    check_moment,
    no_job,
    paired,
    still_needed,
    to_us,
    wrong_state,
)
from taskharbor_mystore.connection import Session
from taskharbor_mystore.flows import bring_back_behind, cancel_behind, needed_by, run_again
from taskharbor_mystore.rows import Row, all_rows, finish, forget, load, note_arrival


def _for_each(
    session: Session, ids: Sequence[str], seen: Sequence[Seen] | None, act: Callable[[Row], DriverError | None]
) -> list[DriverError | None]:
    def one(id: str, expected: Seen | None) -> DriverError | None:
        row = load(session, id)
        if row is None:
            return no_job(id)
        record = row.readable()
        if expected is not None and expected != Seen(record.deliveries, record.edits, record.finished_at):
            return changed_since(id)
        return act(row)

    return [one(id, expected) for id, expected in paired(ids, seen)]


def requeue(
    session: Session,
    ids: Sequence[str],
    now: datetime,
    run_at: datetime | None,
    reset_attempts: bool,
    seen: Sequence[Seen] | None,
) -> list[DriverError | None]:
    if run_at is not None:
        check_moment(run_at, "run_at")
    requeued: list[Row] = []

    def act(row: Row) -> DriverError | None:
        state = row.state_at(now)
        if state is not State.DLQ and state is not State.CANCELLED:
            return wrong_state(row.record.id, state, "requeue")
        session.run("DELETE FROM cancelled_flows WHERE flow_id = ?", row.readable().flow_id)
        run_again(session, row, now, lost=0, run_at=run_at, **({"attempts": 0} if reset_attempts else {}))
        requeued.append(row)
        return None

    results = _for_each(session, ids, seen, act)
    bring_back_behind(session, requeued, now)
    return results


def cancel(
    session: Session, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
) -> list[DriverError | None]:
    cancelled: list[Row] = []

    def act(row: Row) -> DriverError | None:
        state = row.state_at(now)
        if state is State.DONE or state is State.DLQ:
            return wrong_state(row.record.id, state, "cancel")
        if state is not State.CANCELLED:
            finish(session, row, State.CANCELLED, now, reason=CANCELLED_REASON)
            cancelled.append(row)
        return None

    results = _for_each(session, ids, seen, act)
    cancel_behind(session, cancelled, now)
    return results


def cancel_flow(session: Session, flow_id: str, now: datetime) -> int:
    rows = all_rows(session, "SELECT * FROM jobs WHERE flow_id = ?", flow_id)
    if rows:
        session.run("INSERT OR IGNORE INTO cancelled_flows (flow_id) VALUES (?)", flow_id)
    unfinished = [row for row in rows if not row.state_at(now).terminal]
    for row in unfinished:
        finish(session, row, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
    return len(unfinished)


def delete(session: Session, ids: Sequence[str], seen: Sequence[Seen] | None) -> list[DriverError | None]:
    def act(row: Row) -> DriverError | None:
        needed = needed_by(session, row)
        if needed:
            return still_needed(row.record.id, needed)
        forget(session, row)
        return None

    return _for_each(session, ids, seen, act)


def prune(session: Session, before: datetime, limit: int) -> int:
    """Forget jobs that ended long ago, in flows that have ended, which no unfinished job needs."""
    rows = all_rows(
        session,
        "SELECT * FROM jobs WHERE state IN ('done', 'cancelled') AND finished_at < ? AND NOT EXISTS ("
        "SELECT * FROM jobs AS other WHERE other.flow_id = jobs.flow_id AND other.state NOT IN ('done', 'cancelled')) "
        "AND NOT EXISTS (SELECT * FROM edges JOIN jobs AS other ON other.num = edges.job "
        "WHERE edges.dependency = jobs.num AND other.state NOT IN ('done', 'cancelled')) ORDER BY finished_at LIMIT ?",
        to_us(before),
        max(limit, 0),
    )
    for row in rows:
        forget(session, row)
    return len(rows)


def pause(session: Session, queue: str) -> None:
    check_name(queue, "queue")
    session.run("INSERT OR IGNORE INTO queues (name) VALUES (?)", queue)
    session.run("UPDATE queues SET paused = 1 WHERE name = ?", queue)


def resume(session: Session, queue: str) -> None:
    if session.run("UPDATE queues SET paused = 0 WHERE name = ?", queue):
        note_arrival(session, queue)


def beat(session: Session, info: WorkerInfo, now: datetime) -> None:
    check_name(info.worker, "worker")
    text = msgspec.json.encode(msgspec.structs.replace(info, seen_at=now)).decode()
    session.run("INSERT OR REPLACE INTO workers VALUES (?, ?, ?)", info.worker, to_us(now), text)
    session.run("DELETE FROM workers WHERE seen_at <= ?", to_us(now - WORKER_FORGOTTEN_AFTER))
