"""Looking at jobs and deciding over them. Nothing here is on a worker's way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.contract import CANCELLED_REASON, FLOW_CANCELLED_REASON, WORKER_SILENCE
from taskharbor.drivers.cursor import decode_cursor, encode_cursor
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.memory.enqueue import last_of
from taskharbor.drivers.memory.flows import link, waiting_for
from taskharbor.drivers.memory.records import (
    BLOCKED,
    CANCELLED,
    STATES,
    Entry,
    damage_of,
    finished,
    outward,
    readable,
    state_at,
    ticks,
)
from taskharbor.drivers.memory.store import Store
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import FlowInfo, JobInfo, Page, State, WorkerInfo

_REMEMBERED = 10 * WORKER_SILENCE  # a worker with a slow clock must not be forgotten by one with a fast clock

# Looking


def info(store: Store, entry: Entry, now: int) -> JobInfo:
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


def inspect(store: Store, id: str, now: datetime) -> JobInfo:
    entry = store.entries.get(id)
    if entry is None:
        raise JobNotFound(f"no job {id}")
    return info(store, entry, ticks(now))


def list_jobs(
    store: Store,
    now: datetime,
    *,
    queue: str | None,
    state: State | str | None,
    type: str | None,
    group: str | None,
    flow_id: str | None,
    cursor: str | None,
    limit: int,
) -> Page:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")
    moment = ticks(now)
    wanted = State(state) if state is not None else None
    if flow_id is None:
        ids = store.sorted_ids()
    else:
        flow = store.flows.get(flow_id)
        ids = sorted(entry.record.id for entry in flow.members) if flow is not None else []
    items: list[JobInfo] = []
    for index in range(bisect_right(ids, decode_cursor(cursor)) if cursor is not None else 0, len(ids)):
        entry = store.entries.get(ids[index])
        if (
            entry is None
            or (queue is not None and entry.record.queue != queue)
            or (type is not None and entry.record.type != type)
            or (group is not None and entry.record.group != group)
            or (wanted is not None and state_at(entry, moment) is not wanted)
        ):
            continue
        if len(items) == limit:
            return Page(tuple(items), encode_cursor(items[-1].job.id))
        items.append(info(store, entry, moment))
    return Page(tuple(items))


def counts(store: Store, now: datetime) -> dict[str, dict[str, int]]:
    moment = ticks(now)
    answer: dict[str, dict[str, int]] = {}
    for name, queue in sorted(store.queues.items()):
        queue.move(moment)
        states: dict[str, int] = {}
        for standing, number in enumerate(queue.counts):
            if number:
                state = STATES[standing].value
                states[state] = states.get(state, 0) + number
        if states:
            answer[name] = states
    return answer


def flow(store: Store, flow_id: str, now: datetime) -> FlowInfo:
    found = store.flows.get(flow_id)
    if found is None:
        raise JobNotFound(f"no flow {flow_id}")
    moment = ticks(now)
    nodes = tuple(info(store, entry, moment) for entry in sorted(found.members, key=_id))
    return flow_info(flow_id, nodes)


def results(store: Store, ids: Sequence[str]) -> dict[str, bytes | None]:
    entries = {id: store.entries.get(id) for id in ids}
    return {id: last_of(store, entry).record.result if entry is not None else None for id, entry in entries.items()}


# Deciding


def each(store: Store, ids: Sequence[str], act: Callable[[Entry], DriverError | None]) -> list[DriverError | None]:
    """The same for each job, one after the other; an unknown one is answered for."""
    answers: list[DriverError | None] = []
    for id in ids:
        entry = store.entries.get(id)
        answers.append(JobNotFound(f"no job {id}") if entry is None else act(entry))
    return answers


def requeue(
    store: Store, ids: Sequence[str], now: datetime, run_at: datetime | None, reset_attempts: bool
) -> list[DriverError | None]:
    moment = ticks(now)
    if run_at is not None:
        check_moment(run_at, "run_at")

    def act(entry: Entry) -> DriverError | None:
        state = state_at(entry, moment)
        if state is not State.DLQ and state is not State.CANCELLED:
            return WrongState(f"job {entry.record.id} is {state}; requeue takes dlq and cancelled")
        record = replace(entry.record, reason="", finished_at=None, lost=0, run_at=run_at)
        if reset_attempts:
            record = replace(record, attempts=0)
        if record.flow_id is not None:
            store.flows[record.flow_id].cancelled = False
        was_finished = finished(entry)
        store.stand(entry, record, BLOCKED)
        store.unmet.pop(record.id, None)
        if was_finished:
            store.reopen(entry)
        if record.depends_on:
            link(store, entry)
        if not entry.open:
            store.join(entry, record, moment)
        return None

    return each(store, ids, act)


def cancel(store: Store, ids: Sequence[str], now: datetime, reason: str = CANCELLED_REASON) -> list[DriverError | None]:
    moment = ticks(now)

    def act(entry: Entry) -> DriverError | None:
        state = state_at(entry, moment)
        if state is State.CANCELLED:
            return None
        if state is State.DONE or state is State.DLQ:
            return WrongState(f"job {entry.record.id} is {state}; cancel takes what is not terminal")
        store.finish(entry, CANCELLED, replace(entry.record, reason=reason, finished_at=now), moment)
        return None

    return each(store, ids, act)


def cancel_flow(store: Store, flow_id: str, now: datetime) -> int:
    found = store.flows.get(flow_id)
    if found is None:
        return 0
    found.cancelled = True
    moment = ticks(now)
    running = [entry.record.id for entry in found.members if not state_at(entry, moment).terminal]
    cancel(store, running, now, FLOW_CANCELLED_REASON)
    return len(running)


def delete(store: Store, ids: Sequence[str]) -> list[DriverError | None]:
    def act(entry: Entry) -> DriverError | None:
        if entry.holds:
            return WrongState(f"job {entry.record.id} is needed: {entry.holds} unfinished job(s) depend on it")
        store.remove(entry)
        return None

    return each(store, ids, act)


def prune(store: Store, before: datetime, limit: int) -> int:
    moment, gone = ticks(before), 0
    line = store.finished
    while gone < limit and (entry := line.peek()) is not None:
        assert entry.record.finished_at is not None
        if ticks(entry.record.finished_at) >= moment:
            break
        line.pop()
        run = store.flows[entry.record.flow_id] if entry.record.flow_id is not None else None
        if entry.holds or (run is not None and run.open):
            # Not looked at again before what holds it has finished, or each prune would wade through all of these.
            entry.parked = True
            if run is not None and run.open:
                run.parked[entry] = None
            continue
        store.remove(entry)
        gone += 1
    return gone


# Workers


def beat(store: Store, worker: WorkerInfo, now: datetime) -> None:
    check_name(worker.worker, "worker")
    store.workers[worker.worker] = replace(worker, seen_at=now)
    for name in [name for name, heard in store.workers.items() if heard.seen_at <= now - _REMEMBERED]:
        del store.workers[name]


def workers(store: Store, now: datetime) -> list[WorkerInfo]:
    heard = [worker for worker in store.workers.values() if worker.seen_at > now - WORKER_SILENCE]
    return sorted(heard, key=lambda worker: worker.worker)


def _id(entry: Entry) -> str:
    return entry.record.id
