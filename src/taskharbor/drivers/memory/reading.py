"""Reading jobs, flows, queues and their heads, and workers. Nothing here changes a job.

A listing looks at a bounded number of jobs or flows in a call, and says where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import chain, islice

from msgspec.structs import replace

from taskharbor.drivers.base import MAX_SCANNED_FLOWS, MAX_SCANNED_JOBS, WORKER_SILENCE
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.heads import in_turn
from taskharbor.drivers.memory.flows import last_in_place, waiting_for
from taskharbor.drivers.memory.queue import JobQueue, Line
from taskharbor.drivers.memory.records import Entry, readable
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.queries import FlowQuery, JobQuery, check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.model.job import FlowInfo, FlowPage, JobInfo, Page, QueueHead, State, WorkerInfo, flow_info, flow_status
from taskharbor.model.memo import Memo, memo_place
from taskharbor.model.times import from_us


def info(store: MemoryStore, entry: Entry, now: datetime) -> JobInfo:
    """A job as it reads at a moment."""
    record, state = readable(entry), entry.state_at(now)
    if state is State.INFLIGHT and entry.lease is not None:
        return JobInfo(record, state, entry.worker, entry.lease.expires_at)
    if state is State.BLOCKED:
        return JobInfo(record, state, waiting_for=waiting_for(store, entry))
    if entry.lease is not None:  # its lease is over
        return JobInfo(replace(record, run_at=None), state)
    return JobInfo(record, state)


def inspect(store: MemoryStore, id: str, now: datetime) -> JobInfo:
    """One job, or JobNotFound."""
    entry = store.entries.get(id)
    if entry is None:
        raise no_job(id)
    return info(store, entry, now)


def steps(store: MemoryStore, id: str) -> list[Memo]:
    """The memos of a job, if it has any."""
    entry = store.entries.get(id)
    return [] if entry is None else sorted(entry.memos.values(), key=memo_place)


def list_jobs(store: MemoryStore, now: datetime, wanted: JobQuery) -> Page:
    """A page of jobs in the order of their ids, or against it."""
    entries: Iterable[Entry] = store.entries.values()
    if wanted.flow_id is not None:
        entries = store.flows.get(wanted.flow_id, ())
    ids = (entry.record.id for entry in entries if wanted.state in (None, entry.state_at(now)))
    items: list[JobInfo] = []
    last = ""
    for looked_at, id in enumerate(_in_order(ids, wanted.after, wanted.newest)):
        if looked_at == MAX_SCANNED_JOBS:
            return Page(tuple(items), encode_cursor(last))
        found = info(store, store.entries[id], now)
        if wanted.fits(found.job, found.state):
            if len(items) == wanted.limit:
                return Page(tuple(items), encode_cursor(last))
            items.append(replace(found, job=wanted.shown(found.job)))
        last = id
    return Page(tuple(items))


def list_flows(store: MemoryStore, now: datetime, wanted: FlowQuery) -> FlowPage:
    """A page of flows in the order of their ids, or against it."""
    items: list[FlowInfo] = []
    last = ""
    for looked_at, id in enumerate(_in_order(store.flows, wanted.after, wanted.newest)):
        if looked_at == MAX_SCANNED_FLOWS:
            return FlowPage(tuple(items), encode_cursor(last))
        members = sorted(store.flows[id], key=lambda entry: entry.record.id)
        status = flow_status([entry.state_at(now) for entry in members])
        first, newest = readable(members[0]), readable(members[-1])
        found = FlowInfo(id, status, first.created_at, newest.created_at, (), ())
        if wanted.fits(found):
            if len(items) == wanted.limit:
                return FlowPage(tuple(items), encode_cursor(last))
            items.append(found)
        last = id
    return FlowPage(tuple(items))


def _in_order(ids: Iterable[str], after: str | None, newest: bool) -> list[str]:
    """The ids of a page and of those that follow it."""
    if newest:
        return sorted((id for id in ids if after is None or id < after), reverse=True)
    return sorted(id for id in ids if after is None or id > after)


def counts(store: MemoryStore, now: datetime, cap: int | None) -> dict[str, dict[str, int]]:
    """How many jobs each queue has in each state; `cap` stands for that many or more."""
    check_cap(cap)
    by_queue: dict[str, dict[str, int]] = {}
    for name, queue in sorted(store.queues.items()):
        for entry in queue.entries:
            states = by_queue.setdefault(name, {})
            state = entry.state_at(now).value
            number = states.get(state, 0) + 1
            states[state] = number if cap is None else min(number, cap)
    return by_queue


def upcoming(store: MemoryStore, names: Sequence[str], now: datetime) -> datetime | None:
    """The earliest moment at which time alone makes a job of these queues reservable."""
    found = []
    for name in names:
        queue = store.queues.get(name)
        if queue is not None and not queue.paused:
            queue.move(now)
            if (first := queue.ahead.first()) is not None:
                found.append(first[0][0])
    return from_us(min(found)) if found else None


def queues(store: MemoryStore) -> list[str]:
    """The queues that hold a job or are paused."""
    return sorted(name for name, queue in store.queues.items() if queue.paused or queue.entries)


def is_paused(store: MemoryStore, name: str) -> bool:
    """Whether a queue is paused."""
    return name in store.queues and store.queues[name].paused


def flow(store: MemoryStore, flow_id: str, now: datetime) -> FlowInfo:
    """One flow, or JobNotFound."""
    if flow_id not in store.flows:
        raise no_flow(flow_id)
    members = sorted(store.flows[flow_id], key=lambda entry: entry.record.id)
    return flow_info(flow_id, tuple(info(store, entry, now) for entry in members))


def results(store: MemoryStore, ids: Sequence[str]) -> dict[str, bytes | None]:
    """Results by id, each of the job that has the place of the one asked for; those that are not done are left out."""
    found: dict[str, bytes | None] = {}
    for id in ids:
        if (entry := store.entries.get(id)) is not None:
            last = last_in_place(store, entry)
            if last.state is State.DONE and last.record.handed_to is None:  # else the job in its place is gone
                found[id] = last.record.result
    return found


def workers(store: MemoryStore, now: datetime) -> list[WorkerInfo]:
    """The workers with a heartbeat in the last minute."""
    alive = [worker for worker in store.workers.values() if worker.seen_at > now - WORKER_SILENCE]
    return sorted(alive, key=lambda worker: worker.worker)


# The heads of queues: what comes next, and since when the oldest ready job waits
#
# A call walks over the ready jobs of a queue: they are in memory, and nothing has to be kept for it on a job's way.


def heads(store: MemoryStore, names: Sequence[str], now: datetime, n: int) -> list[QueueHead]:
    """The head of each of these queues, in their order."""
    found = []
    for name in names:
        queue = store.queues.get(name)
        if queue is None:
            found.append(QueueHead(name))
        else:
            queue.move(now)
            due = chain.from_iterable(line.places for line in queue.lines())
            oldest = min((entry.waits_since for entry in due), default=None)
            found.append(QueueHead(name, oldest, _next(queue, n) if n else ()))
    return found


def _next(queue: JobQueue, n: int) -> tuple[str, ...]:
    groups = [queue.groups[name] for name in islice(queue.turns, n)]
    members = [_first(group.due, min(n, group.capacity)) for group in groups]
    return in_turn(_first(queue.ungrouped, n), members, queue.groups_next, n)


def _first(line: Line, n: int) -> list[str]:
    return [entry.record.id for entry in nsmallest(n, line.places, key=line.places.__getitem__)]
