"""Pages of jobs and of flows. A call looks at a bounded number of them, and says where it stopped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime

from taskharbor.drivers.base import MAX_SCANNED_FLOWS, MAX_SCANNED_JOBS
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.memory.flows import status_of
from taskharbor.drivers.memory.reading import info
from taskharbor.drivers.memory.records import (
    BLOCKED,
    CANCELLED,
    DLQ,
    LEASED,
    Entry,
    damage_of,
    readable,
    state_at,
)
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.queries import FlowQuery, JobQuery
from taskharbor.model.job import FlowInfo, FlowPage, JobInfo, JobRecord, Page, State
from taskharbor.model.times import to_us

_STANDINGS = {State.BLOCKED: BLOCKED, State.DLQ: DLQ, State.CANCELLED: CANCELLED}


def list_jobs(store: MemoryStore, now: datetime, wanted: JobQuery) -> Page:
    """A page of jobs in the order of their ids, or against it."""
    moment = to_us(now)
    items: list[JobInfo] = []
    last = ""
    for looked_at, id in enumerate(_from(_candidates(store, wanted), wanted.after, wanted.newest)):
        if looked_at == MAX_SCANNED_JOBS:
            return Page(tuple(items), encode_cursor(last))
        entry = store.entries.get(id)
        if entry is not None and wanted.fits(_record(entry), state_at(entry, moment)):
            if len(items) == wanted.limit:
                return Page(tuple(items), encode_cursor(last))
            found = info(store, entry, moment)
            items.append(JobInfo(wanted.shown(found.job), *_rest(found)))
        last = id
    return Page(tuple(items))


def _rest(found: JobInfo) -> tuple[State, str, datetime | None, tuple[str, ...]]:
    return found.state, found.worker, found.lease_expires_at, found.waiting_for


def _record(entry: Entry) -> JobRecord:
    """The record, with which a query can be compared whatever another program did to it."""
    return entry.record if damage_of(entry) is None else readable(entry)


def _candidates(store: MemoryStore, wanted: JobQuery) -> Sequence[str]:
    """Ids in order, among which are those of all wanted jobs. Some may be gone."""
    if wanted.flow_id is not None:
        flow = store.flows.get(wanted.flow_id)
        return sorted(entry.record.id for entry in flow.members) if flow is not None else []
    queues = store.queues.values()
    if wanted.state in _STANDINGS:
        standing = _STANDINGS[wanted.state]
        ids = store.ids_in[standing].in_order(sum(queue.counts[standing] for queue in queues))
        return sorted({*ids, *store.unmet}) if store.unmet else ids  # what is unmet reads as dead
    if wanted.state is State.INFLIGHT and sum(queue.calendar.size() for queue in queues) <= MAX_SCANNED_JOBS:
        return sorted(
            entry.record.id for queue in queues for entry in queue.calendar.entries() if entry.standing in LEASED
        )
    return store.ids.in_order(len(store.entries))


def _from(names: Sequence[str], after: str | None, newest: bool) -> Iterator[str]:
    """The names behind `after`, upwards or downwards."""
    if newest:
        end = bisect_left(names, after) if after is not None else len(names)
        return (names[index] for index in range(end - 1, -1, -1))
    start = bisect_right(names, after) if after is not None else 0
    return (names[index] for index in range(start, len(names)))


def list_flows(store: MemoryStore, wanted: FlowQuery) -> FlowPage:
    """A page of flows in the order of their ids, or against it."""
    items: list[FlowInfo] = []
    last = ""
    names = store.flow_ids.in_order(len(store.flows))
    for looked_at, id in enumerate(_from(names, wanted.after, wanted.newest)):
        if looked_at == MAX_SCANNED_FLOWS:
            return FlowPage(tuple(items), encode_cursor(last))
        found = _flow(store, id)
        if found is not None and wanted.fits(found):
            if len(items) == wanted.limit:
                return FlowPage(tuple(items), encode_cursor(last))
            items.append(found)
        last = id
    return FlowPage(tuple(items))


def _flow(store: MemoryStore, id: str) -> FlowInfo | None:
    flow = store.flows.get(id)
    if flow is None:
        return None
    first, last = flow.ends()
    return FlowInfo(id, status_of(flow), _record(first).created_at, _record(last).created_at, (), ())
