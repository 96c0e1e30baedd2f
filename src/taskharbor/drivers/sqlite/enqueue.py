"""Enqueueing: planned first (`drivers/planning.py`), which may refuse; stored then, which cannot fail.

So a call stores all or none, and an outcome with a spawn is refused before anything of it has happened. Both steps work
on any connection inside a transaction: the driver's own and the caller's. Jobs without a key and without dependencies
need no plan: nothing but their ids can be known already.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from taskharbor.drivers import planning
from taskharbor.drivers.base import FLOW_CANCELLED_REASON
from taskharbor.drivers.planning import Facts, JobFacts, Lookup, Plan, plan_jobs, run_plan
from taskharbor.drivers.sqlite.cascade import is_stranded, strand
from taskharbor.drivers.sqlite.records import (
    BLOCKED,
    CANCELLED,
    DONE,
    WAITING,
    JobRow,
    dependencies_of,
    ids_json,
    maybe_us,
    metadata_json,
)
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import finish, has_open_dependency, hold_dependencies, line_up
from taskharbor.model.bounds import check_enqueue
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack
from taskharbor.model.times import to_us

INSERT = statement("insert")
ROWS_PER_INSERT = 50
INSERT_MANY = INSERT.replace(values := INSERT.partition("VALUES ")[2], ", ".join([values] * ROWS_PER_INSERT))
KNOWN_IDS = statement("known_ids")
KNOWN_KEY = statement("known_key")
PLAN_FACTS = statement("plan_facts")
SET_LIMIT = statement("set_limit")
FLOW_ADD = statement("flow_add")
FLOW_CANCELLED = "SELECT cancelled FROM taskharbor_flows WHERE id = ?"

_MICROSECOND = timedelta(microseconds=1)


def enqueue(session: WriteSession, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none; InvalidJob if one of them cannot be stored."""
    check_enqueue(jobs, max_payload)
    if any(job.depends_on or job.idempotency_key is not None for job in jobs):
        plan = plan_of(session, jobs)
        store_jobs(session, plan.fresh.values(), now)
        return plan.results
    known = _known_ids(session, jobs)
    fresh: dict[str, JobRecord] = {}
    results = []
    for job in jobs:
        existed = job.id in known or job.id in fresh
        if not existed:
            fresh[job.id] = job
        results.append(Enqueued(job.id, existed))
    store_jobs(session, fresh.values(), now)
    return results


def _known_ids(session: WriteSession, jobs: Sequence[JobRecord]) -> set[str]:
    """Which of the jobs' ids are stored."""
    if len(jobs) == 1:  # as nearly always
        return {jobs[0].id} if session.load_for_enqueue(jobs[0].id, jobs[0].queue) else set()
    return {id for (id,) in session.all(KNOWN_IDS, ids_json([job.id for job in jobs]))} if jobs else set()


def plan_of(session: WriteSession, jobs: Sequence[JobRecord]) -> Plan:
    """What a call would store; InvalidJob if it cannot be stored. The jobs were checked one by one."""
    return run_plan(plan_jobs(jobs), partial(_look_up, session))


def heir_of(session: WriteSession, plan: Plan, outcome: Ack, dependents: Sequence[JobRow]) -> str | None:
    """The job that takes over from an acked one: see planning.heir_of."""
    ids = {dependent.id for dependent in dependents}
    return planning.heir_of(plan, outcome, ids, partial(_look_up, session))


def _look_up(session: WriteSession, lookup: Lookup) -> Facts:
    rows = session.all(PLAN_FACTS, ids_json(lookup.ids)) if lookup.ids else []
    jobs = {id: JobFacts(state == DONE, heir, dependencies_of(depends_on)) for id, state, heir, depends_on in rows}
    keys = {}
    for queue, key in lookup.keys:
        row = session.one(KNOWN_KEY, queue, key.encode())
        if row is not None:
            keys[queue, key] = row[0]
    return Facts(jobs, keys)


def store_jobs(session: WriteSession, jobs: Collection[JobRecord], now: datetime) -> None:
    """Store new jobs: first all rows, then the edges and states of those that may depend on each other."""
    if not jobs:
        return
    moment = to_us(now)
    first = session.next_number(len(jobs))
    _insert(session, [_row(session, job, number, moment) for number, job in enumerate(jobs, first)])
    session.number_is_stored(first + len(jobs) - 1)
    for job in jobs:
        if job.group is not None and job.group_limit > 0:
            # Perhaps it is the group's first limit and frees a place: a hint too many costs nothing.
            session.execute(SET_LIMIT, (job.queue, job.group, job.group_limit))
            session.touch_group(job.queue, job.group)
            session.note_arrival(job.queue)
        if job.flow_id is not None:
            session.execute(FLOW_ADD, (job.flow_id,))
    stranded = []
    for number, job in enumerate(jobs, first):
        if job.depends_on or job.flow_id is not None:
            placed = _place(session, job, number, moment)
            if job.depends_on and job.flow_id is not None and is_stranded(session, placed):
                stranded.append(placed)
    strand(session, stranded, moment)


def _insert(session: WriteSession, rows: list[tuple[Any, ...]]) -> None:
    """Fifty rows in one statement cost 8 µs each, one by one 13."""
    whole = len(rows) // ROWS_PER_INSERT * ROWS_PER_INSERT
    for start in range(0, whole, ROWS_PER_INSERT):
        session.execute(INSERT_MANY, [value for row in rows[start : start + ROWS_PER_INSERT] for value in row])
    for row in rows[whole:]:
        session.execute(INSERT, row)


def _row(session: WriteSession, job: JobRecord, number: int, now: int) -> tuple[Any, ...]:
    """The columns of insert.sql. A job with dependencies or a flow is stored blocked, and placed afterwards."""
    queue = session.queue(job.queue)
    run_at = maybe_us(job.run_at)
    if job.depends_on or job.flow_id is not None:
        state, lined, moment = BLOCKED, 0, None
    else:
        state, lined, moment = WAITING, int(run_at is None or run_at <= queue.at), run_at
        session.note_arrival(job.queue)  # also if it is scheduled: a worker that waits has to know until when
        if job.group is not None and lined:
            session.touch_group(job.queue, job.group)
    return (
        number,
        job.id,
        job.queue,
        state,
        lined,
        -job.priority if job.group is None else 0,
        now if run_at is None or run_at < now else run_at,
        number,
        moment,
        job.type,
        job.payload,
        run_at,
        None if job.timeout is None else job.timeout // _MICROSECOND,
        job.attempts,
        job.max_attempts,
        None if job.idempotency_key is None else job.idempotency_key.encode(),
        job.group,
        job.group_limit,
        ids_json(job.depends_on) if job.depends_on else None,
        job.flow_id,
        metadata_json(job.metadata),
        now if job.created_at == EPOCH else to_us(job.created_at),
        job.priority,
        None if job.keep_for is None else job.keep_for // _MICROSECOND,
    )


def _place(session: WriteSession, record: JobRecord, number: int, now: int) -> JobRow:
    """Blocked, waiting for its time, or ready to run; cancelled, if its flow is."""
    job = session.load(record.id)
    assert job is not None
    hold_dependencies(session, job)
    if record.flow_id is not None and session.one(FLOW_CANCELLED, record.flow_id)[0]:
        job.reason = FLOW_CANCELLED_REASON
        finish(session, job, CANCELLED, now)
        return job
    if not has_open_dependency(session, job):
        line_up(session, job, now, number)
    session.save(job)
    return job
