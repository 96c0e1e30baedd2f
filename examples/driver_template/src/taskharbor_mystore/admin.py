"""What an operator does with jobs. Nothing here is on a worker's way, so it may be slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import structs

from taskharbor.drivers import (
    CANCELLED_REASON,
    FLOW_CANCELLED_REASON,
    DriverError,
    Seen,
    State,
    WorkerInfo,
    check_name,
    replace,
)
from taskharbor.drivers.base import WORKER_FORGOTTEN_AFTER
from taskharbor.drivers.damage import readable
from taskharbor.drivers.refusals import changed_since, no_job, paired, still_needed, wrong_state
from taskharbor.model.bounds import check_moment
from taskharbor_mystore import flows
from taskharbor_mystore.store import Row, Store


def _for_each(
    store: Store, ids: Sequence[str], seen: Sequence[Seen] | None, act: Callable[[Row], DriverError | None]
) -> list[DriverError | None]:
    def one(id: str, expected: Seen | None) -> DriverError | None:
        row = store.rows.get(id)
        if row is None:
            return no_job(id)
        record = readable(row.record)
        if expected is not None and expected != Seen(record.deliveries, record.edits, record.finished_at):
            return changed_since(id)
        return act(row)

    return [one(id, expected) for id, expected in paired(ids, seen)]


def requeue(
    store: Store,
    ids: Sequence[str],
    now: datetime,
    run_at: datetime | None,
    reset_attempts: bool,
    seen: Sequence[Seen] | None,
) -> list[DriverError | None]:
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(row: Row) -> DriverError | None:
        state = row.state_at(now)
        if state is not State.DLQ and state is not State.CANCELLED:
            return wrong_state(row.record.id, state, "requeue")
        attempts = 0 if reset_attempts else row.record.attempts
        row.record = replace(row.record, reason="", finished_at=None, lost=0, run_at=run_at, attempts=attempts)
        store.cancelled_flows.discard(row.record.flow_id or "")
        flows.link(store, row)
        if flows.waiting_for(store, row):
            row.state = State.BLOCKED
        else:
            store.make_ready(row, now)
        return None

    return _for_each(store, ids, seen, act)


def cancel(
    store: Store,
    ids: Sequence[str],
    now: datetime,
    reason: str = CANCELLED_REASON,
    seen: Sequence[Seen] | None = None,
) -> list[DriverError | None]:
    def act(row: Row) -> DriverError | None:
        state = row.state_at(now)
        if state is State.DONE or state is State.DLQ:
            return wrong_state(row.record.id, state, "cancel")
        if state is not State.CANCELLED:
            store.finish(row, State.CANCELLED, now, reason=reason)
        return None

    return _for_each(store, ids, seen, act)


def cancel_flow(store: Store, flow_id: str, now: datetime) -> int:
    rows = [row for row in store.rows.values() if row.record.flow_id == flow_id]
    if rows:
        store.cancelled_flows.add(flow_id)
    open_ids = [row.record.id for row in rows if not row.state_at(now).terminal]
    cancel(store, open_ids, now, FLOW_CANCELLED_REASON)
    return len(open_ids)


def _needed_by(store: Store, row: Row) -> int:
    return sum(other.unfinished for other in flows.dependents_of(store, row))


def delete(store: Store, ids: Sequence[str], seen: Sequence[Seen] | None) -> list[DriverError | None]:
    def act(row: Row) -> DriverError | None:
        needed = _needed_by(store, row)
        if needed:
            return still_needed(row.record.id, needed)
        store.forget(row)
        return None

    return _for_each(store, ids, seen, act)


def prune(store: Store, before: datetime, limit: int) -> int:
    open_flows = {row.record.flow_id for row in store.rows.values() if row.unfinished} - {None}
    rows = [
        row
        for row in store.rows.values()
        if not row.unfinished and row.record.finished_at is not None and row.record.finished_at < before
        if row.record.flow_id not in open_flows and not _needed_by(store, row)
    ]
    pruned = rows[: max(limit, 0)]
    for row in pruned:
        store.forget(row)
    return len(pruned)


def beat(store: Store, info: WorkerInfo, now: datetime) -> None:
    check_name(info.worker, "worker")
    store.workers[info.worker] = structs.replace(info, seen_at=now)
    for name, worker in list(store.workers.items()):
        if worker.seen_at <= now - WORKER_FORGOTTEN_AFTER:
            del store.workers[name]
