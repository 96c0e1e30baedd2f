"""Enqueueing: planned first (`drivers/planning.py`), which may refuse; stored then, which cannot fail.

So a call stores all or none, and an outcome with a spawn is refused before anything of it has happened. One job without
dependencies, and several that have no keys either, need no plan: it would be half of what such an enqueue costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from taskharbor.drivers import planning
from taskharbor.drivers.base import FLOW_CANCELLED_REASON
from taskharbor.drivers.memory.flows import link
from taskharbor.drivers.memory.records import CANCELLED, DONE, Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.planning import Facts, JobFacts, Lookup, Plan, plan_jobs, run
from taskharbor.model.bounds import check_job
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack
from taskharbor.model.times import to_us


def enqueue(store: MemoryStore, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none; InvalidJob if one of them cannot be stored."""
    needs_plan, several = False, len(jobs) > 1
    for job in jobs:
        check_job(job, max_payload)
        if job.depends_on or (several and job.idempotency_key is not None):
            needs_plan = True
    if needs_plan:
        plan = plan_of(store, jobs)
        store_jobs(store, plan.fresh.values(), now)
        return plan.results
    results = []
    moment, entries = to_us(now), store.entries
    for job in jobs:
        known = job.id if job.id in entries else None
        if known is None and job.idempotency_key is not None:
            known = _known_by_key(store, job.queue, job.idempotency_key)
        if known is None:
            _place(store, store.add(_as_new(job, now)), now, moment)
        results.append(Enqueued(known or job.id, known is not None))
    return results


def plan_of(store: MemoryStore, jobs: Sequence[JobRecord]) -> Plan[JobFacts]:
    """What a call would store; InvalidJob if it cannot be stored. The jobs were checked one by one."""
    return run(plan_jobs(jobs), partial(_look_up, store))


def heir_of(store: MemoryStore, plan: Plan[JobFacts], outcome: Ack, dependents: Sequence[Entry]) -> str | None:
    """The job that takes over from an acked one: see planning.heir_of."""
    ids = {dependent.record.id for dependent in dependents}
    return planning.heir_of(plan, outcome, ids, partial(_look_up, store))


def store_jobs(store: MemoryStore, jobs: Iterable[JobRecord], now: datetime) -> None:
    """Store new jobs as one: those that depend on each other are all there before the first is placed."""
    moment = to_us(now)
    for entry in [store.add(_as_new(job, now)) for job in jobs]:
        _place(store, entry, now, moment)


def _place(store: MemoryStore, entry: Entry, now: datetime, moment: int) -> None:
    """Blocked, waiting for its time, or ready to run; cancelled, if its flow is."""
    record = entry.record
    if record.depends_on:
        link(store, entry)
    if record.flow_id is not None and store.flows[record.flow_id].cancelled:
        record = replace(record, reason=FLOW_CANCELLED_REASON, finished_at=now)
        store.finish(entry, CANCELLED, record, moment)
    elif entry.open:
        store.block(entry)
    else:
        entry.queue.join(entry, moment, entry.stored)


def _look_up(store: MemoryStore, lookup: Lookup) -> Facts[JobFacts]:
    found = [(id, entry) for id in lookup.ids if (entry := store.entries.get(id)) is not None]
    jobs = {
        id: JobFacts(entry.standing == DONE, entry.record.handed_to, entry.record.depends_on) for id, entry in found
    }
    keys = {(queue, key): id for queue, key in lookup.keys if (id := _known_by_key(store, queue, key)) is not None}
    return Facts(jobs, keys)


def _known_by_key(store: MemoryStore, name: str, key: str) -> str | None:
    queue = store.queues.get(name)
    return queue.keys.get(key) if queue is not None else None


def _as_new(job: JobRecord, now: datetime) -> JobRecord:
    """The record with the fields that only the store writes at their start; mostly only `created_at` has to change."""
    if (
        job.deliveries
        or job.lost
        or job.handed_to is not None
        or job.failed_at is not None
        or job.finished_at is not None
        or job.result is not None
        or job.last_error
        or job.reason
        or job.began_at is not None
        or job.ran_on
        or job.trail
        or job.error_class
        or job.fingerprint
        or job.note
        or job.edits
        or job.metadata
    ):
        # A copy of the metadata: the caller's dict stays the caller's.
        job = replace(job, **_FRESH, metadata=dict(job.metadata))
    return replace(job, created_at=now) if job.created_at == EPOCH else job


_FRESH = {
    "deliveries": 0,
    "lost": 0,
    "handed_to": None,
    "failed_at": None,
    "finished_at": None,
    "result": None,
    "last_error": "",
    "reason": "",
    "began_at": None,
    "ran_on": "",
    "trail": b"",
    "error_class": "",
    "fingerprint": "",
    "note": b"",
    "edits": 0,
}
"""What only the store writes, as it is at the start."""
