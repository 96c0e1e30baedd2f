"""Enqueueing: `taskharbor.drivers.planning` decides, and may refuse; then the new jobs are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from taskharbor.drivers import FLOW_CANCELLED_REASON, Ack, Enqueued, JobRecord, State, check_job, planning, replace
from taskharbor.drivers.planning import Facts, JobFacts, Lookup, Plan, plan_jobs, run
from taskharbor.model.job import EPOCH
from taskharbor_mystore.flows import link, waiting_for
from taskharbor_mystore.store import Row, Store


def enqueue(store: Store, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none."""
    for job in jobs:
        check_job(job, max_payload)
    plan = plan_of(store, jobs)
    store_jobs(store, plan.fresh.values(), now)
    return plan.results


def plan_of(store: Store, jobs: Sequence[JobRecord]) -> Plan[JobFacts]:
    """Which jobs are new, with their dependencies resolved; InvalidJob if they cannot be stored."""
    return run(plan_jobs(jobs), partial(_look_up, store))


def heir_of(store: Store, plan: Plan[JobFacts], ack: Ack, dependents: list[Row]) -> str | None:
    """The job that takes over from an acked one; InvalidJob if it cannot."""
    return planning.heir_of(plan, ack, {row.record.id for row in dependents}, partial(_look_up, store))


def _look_up(store: Store, lookup: Lookup) -> Facts[JobFacts]:
    """The facts that a plan asks for: yours is one query over `lookup.ids` and one over `lookup.keys`."""
    rows = [store.rows[id] for id in lookup.ids if id in store.rows]
    by_key = {(row.record.queue, row.record.idempotency_key): id for id, row in store.rows.items() if lookup.keys}
    return Facts(
        {row.record.id: JobFacts(row.state is State.DONE, row.record.handed_to, row.record.depends_on) for row in rows},
        {key: by_key[key] for key in lookup.keys if key in by_key},
    )


def store_jobs(store: Store, jobs: Iterable[JobRecord], now: datetime) -> None:
    """Store new jobs. All are there before the first is linked: they may depend on each other."""
    rows = []
    for job in jobs:
        rows.append(Row(_as_new(job, now), store.next_number()))
        store.rows[job.id] = rows[-1]
        if job.group is not None and job.group_limit > 0:
            store.group_limits.setdefault((job.queue, job.group), job.group_limit)
            store.arrived[job.queue] = store.number
    for row in rows:
        link(store, row)
        if row.record.flow_id in store.cancelled_flows:
            store.finish(row, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
        elif not waiting_for(store, row):
            store.make_ready(row, now)


def _as_new(job: JobRecord, now: datetime) -> JobRecord:
    """The record with the fields that only the store writes at their start."""
    return replace(
        job,
        deliveries=0,
        lost=0,
        handed_to=None,
        failed_at=None,
        finished_at=None,
        result=None,
        last_error="",
        reason="",
        metadata=dict(job.metadata),
        created_at=now if job.created_at == EPOCH else job.created_at,
    )
