"""Reading jobs, flows and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from taskharbor.drivers import WORKER_SILENCE, FlowInfo, JobInfo, Page, State, WorkerInfo, replace
from taskharbor.drivers.cursor import encode_cursor
from taskharbor.drivers.damage import damage_of, damaged_reason, readable
from taskharbor.drivers.graph import flow_info
from taskharbor.drivers.queries import JobQuery, check_cap
from taskharbor.drivers.refusals import no_flow, no_job
from taskharbor_mystore.flows import last_in_place, waiting_for
from taskharbor_mystore.store import Row, Store


def info(store: Store, row: Row, now: datetime) -> JobInfo:
    """A job as it reads at `now`."""
    record, state = row.record, row.state_at(now)
    if damage_of(record) is not None:
        record = readable(record)
    if not isinstance(row.state, State):
        record = replace(record, reason=damaged_reason("unknown state"))
    record = replace(record, metadata=dict(record.metadata))
    if state is State.INFLIGHT and row.lease is not None:
        return JobInfo(record, state, row.worker, row.lease.expires_at)
    if state is State.BLOCKED:
        return JobInfo(record, state, waiting_for=waiting_for(store, row))
    return JobInfo(replace(record, run_at=None) if row.lease is not None else record, state)


def inspect(store: Store, id: str, now: datetime) -> JobInfo:
    if id not in store.rows:
        raise no_job(id)
    return info(store, store.rows[id], now)


def list_jobs(store: Store, now: datetime, wanted: JobQuery) -> Page:
    after = wanted.after
    ids = [id for id in store.rows if after is None or (id < after if wanted.newest else id > after)]
    found = (info(store, store.rows[id], now) for id in sorted(ids, reverse=wanted.newest))
    fitting = [each for each in found if wanted.fits(each.job, each.state)]
    items = tuple(structs.replace(each, job=wanted.shown(each.job)) for each in fitting[: wanted.limit])
    return Page(items, encode_cursor(items[-1].job.id) if len(fitting) > wanted.limit else None)


def counts(store: Store, now: datetime, cap: int | None) -> dict[str, dict[str, int]]:
    check_cap(cap)
    by_queue: dict[str, dict[str, int]] = {}
    for row in store.rows.values():
        states = by_queue.setdefault(row.record.queue, {})
        state = row.state_at(now).value
        states[state] = states.get(state, 0) + 1
    return by_queue


def flow(store: Store, flow_id: str, now: datetime) -> FlowInfo:
    rows = [row for _, row in sorted(store.rows.items()) if row.record.flow_id == flow_id]
    if not rows:
        raise no_flow(flow_id)
    return flow_info(flow_id, tuple(info(store, row, now) for row in rows))


def results(store: Store, ids: Sequence[str]) -> dict[str, bytes | None]:
    """A job whose heir is gone has no result: that of its heir stood for it."""
    last = {id: last_in_place(store, store.rows[id]) for id in ids if id in store.rows}
    return {
        id: row.record.result for id, row in last.items() if row.state is State.DONE and row.record.handed_to is None
    }


def workers(store: Store, now: datetime) -> list[WorkerInfo]:
    alive = [worker for worker in store.workers.values() if worker.seen_at > now - WORKER_SILENCE]
    return sorted(alive, key=lambda worker: worker.worker)
