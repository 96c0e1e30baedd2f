"""Reading jobs, flows, queues and workers. Nothing here changes a job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.base import WORKER_SILENCE
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.memory.flows import last_in_place, waiting_for
from taskharbor.drivers.memory.records import DONE, STATES, Entry, damage_of, outward, readable, state_at
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.queries import check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor.model.job import FlowInfo, JobInfo, State, WorkerInfo
from taskharbor.model.times import from_us, to_us


def info(store: MemoryStore, entry: Entry, now: int) -> JobInfo:
    """A job as it reads at a moment."""
    state = state_at(entry, now)
    record = outward(entry.record) if damage_of(entry) is None else readable(entry)
    if state is State.INFLIGHT:
        return JobInfo(record, state, entry.worker, entry.lease.expires_at if entry.lease else None)
    if state is State.BLOCKED:
        return JobInfo(record, state, waiting_for=waiting_for(store, entry))
    if state is State.READY and entry.lease:  # its lease is over
        return JobInfo(replace(record, run_at=None), state)
    return JobInfo(record, state)


def inspect(store: MemoryStore, id: str, now: datetime) -> JobInfo:
    """One job, or JobNotFound."""
    entry = store.entries.get(id)
    if entry is None:
        raise no_job(id)
    return info(store, entry, to_us(now))


def counts(store: MemoryStore, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
    """How many jobs each queue has in each state; `cap` stands for that many or more."""
    check_cap(cap)
    moment = to_us(now)
    by_queue: dict[str, dict[str, int]] = {}
    for name, queue in sorted(store.queues.items()):
        queue.move(moment)
        states: dict[str, int] = {}
        for standing, number in enumerate(queue.counts):
            if number:
                state = STATES[standing].value
                number += states.get(state, 0)
                states[state] = number if cap is None else min(number, cap)
        if states:
            by_queue[name] = states
    return by_queue


def upcoming(store: MemoryStore, names: Sequence[str], now: datetime) -> datetime | None:
    """When the next job becomes due in these queues, or the next lease ends, though nothing is called."""
    moment, found = to_us(now), []
    for name in names:
        queue = store.queues.get(name)
        if queue is not None and not queue.paused:
            queue.move(moment)
            if (due := queue.calendar.next()) is not None:
                found.append(due)
    return from_us(min(found)) if found else None


def queues(store: MemoryStore) -> list[str]:
    """The queues that hold a job or are paused."""
    return sorted(name for name, queue in store.queues.items() if queue.paused or not queue.empty())


def is_paused(store: MemoryStore, name: str) -> bool:
    """Whether a queue is paused."""
    queue = store.queues.get(name)
    return queue is not None and queue.paused


def flow(store: MemoryStore, flow_id: str, now: datetime) -> FlowInfo:
    """One flow, or JobNotFound."""
    found = store.flows.get(flow_id)
    if found is None:
        raise no_flow(flow_id)
    moment = to_us(now)
    members = sorted(found.members, key=lambda entry: entry.record.id)
    return flow_info(flow_id, tuple(info(store, entry, moment) for entry in members))


def results(store: MemoryStore, ids: Sequence[str]) -> dict[str, bytes | None]:
    """Results by id, each of the job that has the place of the one asked for; those that are not done are left out."""
    found: dict[str, bytes | None] = {}
    for id in ids:
        if (entry := store.entries.get(id)) is not None:
            last = last_in_place(store, entry)
            if last.standing == DONE and last.record.handed_to is None:  # else the job in its place is gone
                found[id] = last.record.result
    return found


def workers(store: MemoryStore, now: datetime) -> list[WorkerInfo]:
    """The workers with a heartbeat in the last minute."""
    alive = [worker for worker in store.workers.values() if worker.seen_at > now - WORKER_SILENCE]
    return sorted(alive, key=lambda worker: worker.worker)
