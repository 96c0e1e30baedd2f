"""Enqueueing: planned first (`drivers/planning.py`), which may refuse; stored then, which cannot fail.

So a call stores all or none, and an outcome with a spawn is refused before anything of it has happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial

from taskharbor.drivers import planning
from taskharbor.drivers.base import FLOW_CANCELLED_REASON
from taskharbor.drivers.memory.flows import is_stranded, join_or_block, link, strand
from taskharbor.drivers.memory.records import Entry
from taskharbor.drivers.memory.store import MemoryStore
from taskharbor.drivers.planning import Facts, JobFacts, Lookup, Plan, as_new, plan_jobs, run_plan
from taskharbor.model.bounds import check_enqueue
from taskharbor.model.job import JobRecord, State
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack


def enqueue(store: MemoryStore, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none; InvalidJob if one of them cannot be stored."""
    check_enqueue(jobs, max_payload)
    plan = plan_of(store, jobs)
    store_jobs(store, plan.fresh.values(), now)
    return plan.results


def plan_of(store: MemoryStore, jobs: Sequence[JobRecord]) -> Plan:
    """What a call would store; InvalidJob if it cannot be stored. The jobs were checked one by one."""
    return run_plan(plan_jobs(jobs), partial(_look_up, store))


def heir_of(store: MemoryStore, plan: Plan, outcome: Ack, dependents: Collection[Entry]) -> str | None:
    """The job that takes over from an acked one: see planning.heir_of."""
    ids = {dependent.record.id for dependent in dependents}
    return planning.heir_of(plan, outcome, ids, partial(_look_up, store))


def store_jobs(store: MemoryStore, jobs: Iterable[JobRecord], now: datetime) -> None:
    """Store new jobs as one: those that depend on each other are all there before the first is placed."""
    added = [store.add(as_new(job, now)) for job in jobs]
    for entry in added:
        if entry.record.flow_id in store.cancelled_flows:
            link(store, entry)
            store.finish(entry, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
        else:
            join_or_block(store, entry, now)
    strand(store, [entry for entry in added if entry.state is State.BLOCKED and is_stranded(entry)], now)


def _look_up(store: MemoryStore, lookup: Lookup) -> Facts:
    """What a plan asks of the store."""
    found = [(id, entry) for id in lookup.ids if (entry := store.entries.get(id)) is not None]
    jobs = {
        id: JobFacts(entry.state is State.DONE, entry.record.handed_to, entry.record.depends_on) for id, entry in found
    }
    keys = {
        (name, key): queue.keys[key]
        for name, key in lookup.keys
        if (queue := store.queues.get(name)) is not None and key in queue.keys
    }
    return Facts(jobs, keys)
