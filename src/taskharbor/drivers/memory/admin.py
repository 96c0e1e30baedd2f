"""What an operator does with jobs and queues, and the heartbeats of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.base import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_FORGOTTEN_AFTER
from taskharbor.drivers.memory.flows import bring_back_behind, cancel_behind, join_or_block
from taskharbor.drivers.memory.queue import Line
from taskharbor.drivers.memory.records import Entry, readable
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.refusals import (
    amended_since,
    changed_since,
    no_job,
    not_amendable,
    paired,
    still_needed,
    wrong_state,
)
from taskharbor.model.amendment import Amend
from taskharbor.model.bounds import check_amend, check_moment, check_name
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError
from taskharbor.model.job import Seen, State, WorkerInfo


def _for_each(
    store: MemoryStore, ids: Sequence[str], seen: Sequence[Seen] | None, act: Callable[[Entry], DriverError | None]
) -> list[DriverError | None]:
    """`act` on each job, one after the other, unless it is unknown or not as it was seen."""

    def one(id: str, expected: Seen | None) -> DriverError | None:
        entry = store.entries.get(id)
        if entry is None:
            return no_job(id)
        if expected is not None and _seen(entry) != expected:
            return changed_since(id)
        return act(entry)

    return [one(id, expected) for id, expected in paired(ids, seen)]


def _seen(entry: Entry) -> Seen:
    """What `inspect` shows of it."""
    record = readable(entry)
    return Seen(record.deliveries, record.edits, record.finished_at)


def requeue(
    store: MemoryStore,
    ids: Sequence[str],
    now: datetime,
    run_at: datetime | None,
    reset_attempts: bool,
    seen: Sequence[Seen] | None = None,
) -> list[DriverError | None]:
    """Bring dead and cancelled jobs back."""
    if run_at is not None:
        check_moment(run_at, "run_at")
    requeued: list[Entry] = []

    def act(entry: Entry) -> DriverError | None:
        state = entry.state_at(now)
        if state is not State.DLQ and state is not State.CANCELLED:
            return wrong_state(entry.record.id, state, "requeue")
        store.leave(entry)
        record = replace(entry.record, reason="", finished_at=None, lost=0, run_at=run_at, note=b"")
        entry.record = replace(record, attempts=0) if reset_attempts else record
        entry.lost_at = None
        if record.flow_id is not None:
            store.cancelled_flows.discard(record.flow_id)
        join_or_block(store, entry, now)
        requeued.append(entry)
        return None

    results = _for_each(store, ids, seen, act)
    bring_back_behind(store, requeued, now)
    return results


def cancel(
    store: MemoryStore, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
) -> list[DriverError | None]:
    """Cancel what is not terminal, and what can no longer run then."""
    cancelled: list[Entry] = []

    def act(entry: Entry) -> DriverError | None:
        state = entry.state_at(now)
        if state is State.DONE or state is State.DLQ:
            return wrong_state(entry.record.id, state, "cancel")
        if state is not State.CANCELLED:
            store.finish(entry, State.CANCELLED, now, reason=CANCELLED_REASON)
            cancelled.append(entry)
        return None

    results = _for_each(store, ids, seen, act)
    cancel_behind(store, cancelled, now)
    return results


def cancel_flow(store: MemoryStore, flow_id: str, now: datetime) -> int:
    """Cancel what is not terminal in a flow, and whatever is stored in it from now on."""
    members = store.flows.get(flow_id)
    if members is None:
        return 0
    store.cancelled_flows.add(flow_id)
    unfinished = [entry for entry in members if not entry.state_at(now).terminal]
    for entry in unfinished:
        store.finish(entry, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
    return len(unfinished)


def delete(store: MemoryStore, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
    """Forget jobs that no unfinished job depends on."""

    def act(entry: Entry) -> DriverError | None:
        needed_by = sum(not dependent.finished for dependent in entry.dependents)
        if needed_by:
            return still_needed(entry.record.id, needed_by)
        store.remove(entry)
        return None

    return _for_each(store, ids, seen, act)


def amend(
    store: MemoryStore, changes: Sequence[Amend], now: datetime, max_payload: int
) -> list[TaskHarborError | None]:
    """Change jobs one after the other; a refused change has its error in its place."""
    return [_amend_one(store, change, now, max_payload) for change in changes]


def _amend_one(store: MemoryStore, change: Amend, now: datetime, max_payload: int) -> TaskHarborError | None:
    try:
        check_amend(change, max_payload)
    except InvalidJob as invalid:
        return invalid
    entry = store.entries.get(change.id)
    if entry is None:
        return no_job(change.id)
    if entry.state is State.DONE or entry.lease is not None:
        return not_amendable(change.id, "done" if entry.state is State.DONE else "under a lease")
    record = entry.record
    if (record.deliveries, record.edits) != (change.deliveries, change.edits):
        return amended_since(change.id)
    changes = change.changes()
    if isinstance(change.metadata, dict):
        changes["metadata"] = dict(change.metadata)  # the caller's dict stays the caller's
    if "payload" in changes:  # what was done for the old one
        entry.memos.clear()
        changes["has_memos"] = False
    entry.record = replace(record, edits=record.edits + 1, **changes)
    if entry.state is State.READY and ("run_at" in changes or "priority" in changes):
        store.join(entry, now)
    return None


def prune(store: MemoryStore, before: datetime, limit: int, retention: timedelta) -> int:
    """Forget up to `limit` jobs that are kept no longer, the oldest first."""
    pruned = _prune(store, store.finished, before, limit)
    return pruned + _prune(store, store.kept, before + retention, limit - pruned)


def _prune(store: MemoryStore, ended: Line, before: datetime, limit: int) -> int:
    needed, pruned = [], 0
    open_flows: dict[str | None, bool] = {None: False}
    while pruned < limit and (first := ended.first()) is not None and first[0][0] < before:
        place, entry = first
        flow_id = entry.record.flow_id
        if flow_id is not None and flow_id not in open_flows:  # none of them ends here: it is worked out once
            open_flows[flow_id] = not all(member.finished for member in store.flows[flow_id])
        is_needed = not all(dependent.finished for dependent in entry.dependents)
        if is_needed or open_flows[flow_id]:
            ended.remove(entry)
            needed.append((place, entry))
        else:
            store.remove(entry)
            pruned += 1
    for place, entry in needed:
        ended.put(entry, *place)
    return pruned


def pause(store: MemoryStore, name: str) -> None:
    """Stop new reservations from a queue, which need not exist yet."""
    check_name(name, "queue")
    store.queue(name).paused = True


def resume(store: MemoryStore, name: str) -> None:
    """Allow reservations from a queue again."""
    queue = store.queues.get(name)
    if queue is not None and queue.paused:
        queue.paused = False
        queue.arrived = store.next_number()
        store.forget_if_empty(queue)


def beat(store: MemoryStore, worker: WorkerInfo, now: datetime) -> None:
    """Note that a worker is alive, and forget those that have been silent for long."""
    check_name(worker.worker, "worker")
    store.workers[worker.worker] = replace(worker, seen_at=now)
    for name in [name for name, seen in store.workers.items() if seen.seen_at <= now - WORKER_FORGOTTEN_AFTER]:
        del store.workers[name]
