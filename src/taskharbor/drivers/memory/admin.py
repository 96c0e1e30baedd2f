"""What an operator does with jobs and queues, and the heartbeats of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from taskharbor.drivers.base import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_FORGOTTEN_AFTER
from taskharbor.drivers.memory.flows import link
from taskharbor.drivers.memory.heaps import OrderedEntries
from taskharbor.drivers.memory.records import CANCELLED, MICROSECOND, Entry, damage_of, finished, readable, state_at
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.refusals import changed_since, no_job, paired, still_needed, wrong_state
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import DriverError
from taskharbor.model.job import Seen, State, WorkerInfo
from taskharbor.model.times import to_us


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
    record = entry.record if damage_of(entry) is None else readable(entry)
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
    moment = to_us(now)
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(entry: Entry) -> DriverError | None:
        state = state_at(entry, moment)
        if state is not State.DLQ and state is not State.CANCELLED:
            return wrong_state(entry.record.id, state, "requeue")
        record = replace(entry.record, reason="", finished_at=None, lost=0, run_at=run_at, note=b"")
        if reset_attempts:
            record = replace(record, attempts=0)
        if record.flow_id is not None:
            store.flows[record.flow_id].cancelled = False
        was_finished = finished(entry)
        store.take_out(entry, record)
        store.block(entry)
        store.unmet.pop(record.id, None)
        entry.lost_at = None
        if was_finished:
            store.reopen(entry)
        if record.depends_on:
            link(store, entry)
        if not entry.open:
            store.join(entry, record, moment)
        return None

    return _for_each(store, ids, seen, act)


def cancel(
    store: MemoryStore,
    ids: Sequence[str],
    now: datetime,
    seen: Sequence[Seen] | None = None,
    reason: str = CANCELLED_REASON,
) -> list[DriverError | None]:
    """Cancel what is not terminal."""
    moment = to_us(now)

    def act(entry: Entry) -> DriverError | None:
        state = state_at(entry, moment)
        if state is State.CANCELLED:
            return None
        if state is State.DONE or state is State.DLQ:
            return wrong_state(entry.record.id, state, "cancel")
        store.finish(entry, CANCELLED, replace(entry.record, reason=reason, finished_at=now), moment)
        return None

    return _for_each(store, ids, seen, act)


def cancel_flow(store: MemoryStore, flow_id: str, now: datetime) -> int:
    """Cancel what is not terminal in a flow, and whatever is stored in it from now on."""
    flow = store.flows.get(flow_id)
    if flow is None:
        return 0
    flow.cancelled = True
    moment = to_us(now)
    open_ids = [entry.record.id for entry in flow.members if not state_at(entry, moment).terminal]
    cancel(store, open_ids, now, reason=FLOW_CANCELLED_REASON)
    return len(open_ids)


def delete(store: MemoryStore, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
    """Forget jobs that no unfinished job depends on."""

    def act(entry: Entry) -> DriverError | None:
        if entry.holds:
            return still_needed(entry.record.id, entry.holds)
        store.remove(entry)
        return None

    return _for_each(store, ids, seen, act)


def prune(store: MemoryStore, before: datetime, limit: int, retention: timedelta) -> int:
    """Forget up to `limit` jobs that are kept no longer, the oldest first."""
    moment = to_us(before)
    pruned = _prune(store, store.finished, moment, limit)
    return pruned + _prune(store, store.kept, moment + retention // MICROSECOND, limit - pruned)


def _prune(store: MemoryStore, ended: OrderedEntries, moment: int, limit: int) -> int:
    pruned = 0
    while pruned < limit and (first := ended.first()) is not None and first < moment:
        entry = ended.pop()
        assert entry is not None
        flow = store.flows[entry.record.flow_id] if entry.record.flow_id is not None else None
        if entry.holds or (flow is not None and flow.open):
            # Parked until what needs it has finished, or each prune would wade through all of these again.
            entry.parked = True
            if flow is not None and flow.open:
                flow.parked[entry] = None
            continue
        store.remove(entry)
        pruned += 1
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


def beat(store: MemoryStore, worker: WorkerInfo, now: datetime) -> None:
    """Note that a worker is alive, and forget those that have been silent for long."""
    check_name(worker.worker, "worker")
    store.workers[worker.worker] = replace(worker, seen_at=now)
    for name in [name for name, seen in store.workers.items() if seen.seen_at <= now - WORKER_FORGOTTEN_AFTER]:
        del store.workers[name]
