"""Enqueueing: `plan_jobs` decides, and may refuse; then the new jobs are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from taskharbor.drivers import (
    FLOW_CANCELLED_REASON,
    Ack,
    Enqueued,
    JobRecord,
    State,
    check_enqueue,
)
from taskharbor.drivers.kit import Facts, JobFacts, Lookup, Plan, as_new, heir_of, plan_jobs, run_plan
from taskharbor_mystore.connection import Session
from taskharbor_mystore.flows import is_stranded, link, strand, waiting_for
from taskharbor_mystore.rows import Row, finish, insert, load, make_ready, note_arrival


def enqueue(session: Session, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none."""
    check_enqueue(jobs, max_payload)
    plan = plan_of(session, jobs)
    store_jobs(session, plan.fresh.values(), now)
    return plan.results


def plan_of(session: Session, jobs: Sequence[JobRecord]) -> Plan:
    """Which jobs are new, with their dependencies resolved; InvalidJob if they cannot be stored."""
    return run_plan(plan_jobs(jobs), partial(_look_up, session))


def heir_in(session: Session, plan: Plan, ack: Ack, dependents: Iterable[Row]) -> str | None:
    """The job that takes over from an acked one; InvalidJob if it cannot."""
    return heir_of(plan, ack, {row.record.id for row in dependents}, partial(_look_up, session))


def _look_up(session: Session, lookup: Lookup) -> Facts:
    """The facts that a plan asks for. Where each query is a round trip, ask for all ids, and for all keys, at once."""
    rows = {id: row for id in lookup.ids if (row := load(session, id)) is not None}
    jobs = {
        id: JobFacts(row.state == "done", row.readable().handed_to, row.readable().depends_on)
        for id, row in rows.items()
    }
    keys = {}
    for queue, key in lookup.keys:
        found = session.row("SELECT id FROM jobs WHERE queue = ? AND idempotency_key = ?", queue, key)
        if found is not None:
            keys[queue, key] = found["id"]
    return Facts(jobs, keys)


def store_jobs(session: Session, jobs: Iterable[JobRecord], now: datetime) -> None:
    """Store new jobs. All are there before the first is linked: they may depend on each other."""
    ids, stranded = [], []
    for job in jobs:
        insert(session, as_new(job, now))
        ids.append(job.id)
        if job.group is not None and job.group_limit > 0:
            _set_capacity(session, job.queue, job.group, job.group_limit)
    for row in [row for id in ids if (row := load(session, id)) is not None]:
        link(session, row)
        cancelled = session.row("SELECT * FROM cancelled_flows WHERE flow_id = ?", row.record.flow_id)
        if cancelled is not None:
            finish(session, row, State.CANCELLED, now, reason=FLOW_CANCELLED_REASON)
        elif not waiting_for(session, row):
            make_ready(session, row, now)
        elif is_stranded(session, row):
            stranded.append(row)
    strand(session, stranded, now)


def _set_capacity(session: Session, queue: str, group: str, capacity: int) -> None:
    """The first limit that a group is given counts."""
    session.run("INSERT OR IGNORE INTO groups (queue, name) VALUES (?, ?)", queue, group)
    sql = "UPDATE groups SET capacity = ? WHERE queue = ? AND name = ? AND capacity = 0"
    if session.run(sql, capacity, queue, group):
        note_arrival(session, queue)
