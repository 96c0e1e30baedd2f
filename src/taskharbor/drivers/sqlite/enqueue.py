"""Enqueueing in two steps: a plan, which may refuse and writes nothing, and carrying it out, which cannot fail.

So a call stores all or none, and an outcome with a spawn is refused before anything of it has happened. Both work on
any connection inside a transaction: the driver's own, and the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.contract import FLOW_CANCELLED_REASON
from taskharbor.drivers.graph import refuse_cycle, refuse_cycle_by_handover, unknown_dependency
from taskharbor.drivers.sqlite import edges
from taskharbor.drivers.sqlite.records import (
    BLOCKED,
    CANCELLED,
    DONE,
    WAITING,
    JobRow,
    ids_json,
    maybe_ticks,
    metadata_json,
    ticks,
)
from taskharbor.drivers.sqlite.session import WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.drivers.sqlite.transitions import finish, line_up
from taskharbor.model.bounds import check_job
from taskharbor.model.job import EPOCH, JobRecord, replace
from taskharbor.model.lease import Enqueued

INSERT = statement("insert")
MANY = 50
INSERT_MANY = INSERT.replace(values := INSERT.partition("VALUES ")[2], ", ".join([values] * MANY))
KNOWN_ID = "SELECT 1 FROM taskharbor_jobs WHERE id = ?"
KNOWN_IDS = statement("known_ids")
KNOWN_KEY = statement("known_key")
SET_LIMIT = statement("set_limit")
PLACE = "SELECT handed_to, state, depends_on FROM taskharbor_jobs WHERE id = ?"

_MICROSECOND = timedelta(microseconds=1)


class Plan:
    """What a call will store, and what it will answer."""

    __slots__ = ("aliases", "answers", "fresh")

    def __init__(self) -> None:
        self.answers: list[Enqueued] = []
        self.fresh: dict[str, JobRecord] = {}  # by id, in the order of the call
        self.aliases: dict[str, str] = {}  # the id of a job that is known by its key → the known id


def enqueue(session: WriteSession, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> list[Enqueued]:
    """Store jobs, all or none."""
    made = plan(session, jobs, max_payload)
    carry_out(session, made, now)
    return made.answers


def plan(session: WriteSession, jobs: Sequence[JobRecord], max_payload: int) -> Plan:
    """Check a call; InvalidJob if anything of it cannot be stored."""
    for job in jobs:
        check_job(job, max_payload)
    made = Plan()
    stored = _stored(session, jobs)
    keys: dict[tuple[str, str], str] = {}
    edges = False
    for job in jobs:
        known = _known(session, made, stored, keys, job)
        if known is None:
            made.fresh[job.id] = job
            if job.idempotency_key is not None:
                keys[job.queue, job.idempotency_key] = job.id
            edges = edges or bool(job.depends_on)
        made.answers.append(Enqueued(known or job.id, known is not None))
    if edges:
        for id, record in made.fresh.items():
            if record.depends_on:
                depends_on = tuple([_resolve(session, made, id, dependency) for dependency in record.depends_on])
                if depends_on != record.depends_on:
                    made.fresh[id] = replace(record, depends_on=depends_on)
        refuse_cycle({id: record.depends_on for id, record in made.fresh.items()})
    return made


def _stored(session: WriteSession, jobs: Sequence[JobRecord]) -> set[str]:
    """Which ids are known."""
    if len(jobs) == 1:  # as nearly always: a look into an index, without a list
        return {jobs[0].id} if session.one(KNOWN_ID, jobs[0].id) is not None else set()
    return {id for (id,) in session.all(KNOWN_IDS, ids_json([job.id for job in jobs]))} if jobs else set()


def _known(
    session: WriteSession, made: Plan, stored: set[str], keys: dict[tuple[str, str], str], job: JobRecord
) -> str | None:
    # The id decides before the key.
    if job.id in stored or job.id in made.fresh:
        return job.id
    if job.id in made.aliases:
        return made.aliases[job.id]
    key = job.idempotency_key
    if key is None:
        return None
    known = keys.get((job.queue, key))
    if known is None:
        row = session.one(KNOWN_KEY, job.queue, key.encode())
        known = row[0] if row is not None else None
    if known is not None:
        made.aliases[job.id] = known
    return known


def carry_out(session: WriteSession, made: Plan, now: datetime) -> None:
    """Store what was planned, as one."""
    fresh = made.fresh
    if not fresh:
        return
    moment = ticks(now)
    first = session.next_number(len(fresh))
    _insert(session, _rows(session, fresh.values(), first, moment))
    session.number_kept(first + len(fresh) - 1)
    for record in fresh.values():
        if record.group is not None and record.group_limit > 0:
            # Perhaps it is the first limit and frees a slot: a hint too many costs nothing.
            session.execute(SET_LIMIT, (record.queue, record.group, record.group_limit))
            session.touch_group(record.queue, record.group)
            session.arrive(record.queue)
        if record.flow_id is not None:
            edges.add(session, record.flow_id)
    for number, record in enumerate(fresh.values(), first):
        if record.depends_on or record.flow_id is not None:
            _place(session, record, number, moment)


def _insert(session: WriteSession, rows: list[tuple[Any, ...]]) -> None:
    """Many rows in one statement cost 8 µs each, one by one 13."""
    whole = len(rows) // MANY * MANY
    for start in range(0, whole, MANY):
        session.execute(INSERT_MANY, [value for row in rows[start : start + MANY] for value in row])
    session.executemany(INSERT, rows[whole:])


def _rows(session: WriteSession, records: Iterable[JobRecord], first: int, now: int) -> list[tuple[Any, ...]]:
    """The rows of new jobs. What depends on others, or belongs to a run, is stored blocked and placed afterwards."""
    rows = []
    for number, job in enumerate(records, first):
        queue = session.queue(job.queue)
        run_at = maybe_ticks(job.run_at)
        if job.depends_on or job.flow_id is not None:
            state, lined, moment = BLOCKED, 0, None
        else:
            state, lined, moment = WAITING, int(run_at is None or run_at <= queue.at), run_at
            if run_at is None or run_at <= now:
                session.arrive(job.queue)
            if job.group is not None and lined:
                session.touch_group(job.queue, job.group)
        rows.append(
            (
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
                now if job.created_at == EPOCH else ticks(job.created_at),
                job.priority,
            )
        )
    return rows


def _place(session: WriteSession, record: JobRecord, number: int, now: int) -> None:
    job = session.load(record.id)
    assert job is not None
    edges.hold(session, job)
    if record.flow_id is not None and edges.is_cancelled(session, record.flow_id):
        job.reason = FLOW_CANCELLED_REASON
        finish(session, job, CANCELLED, now)
        return
    if not edges.is_open(session, job):
        line_up(session, job, now, number)
    session.save(job)


def refuse_handover(session: WriteSession, made: Plan, new: str, dependents: Sequence[JobRow]) -> None:
    """InvalidJob if a cycle would come of it."""

    def waits_for(id: str) -> Sequence[str]:
        if id in made.fresh:
            return made.fresh[id].depends_on
        job = session.load(id)
        return job.dependencies if job is not None and job.state != DONE else ()

    refuse_cycle_by_handover(new, {dependent.id for dependent in dependents}, waits_for)


def _resolve(session: WriteSession, made: Plan, id: str, dependency: str) -> str:
    """The id under which a dependency is stored, or will be."""
    dependency = made.aliases.get(dependency, dependency)
    if dependency in made.fresh:
        return dependency
    found = last_of(session, dependency)
    if found is None:
        raise unknown_dependency(id, dependency)
    return found


def last_of(session: WriteSession, id: str) -> str | None:
    """The job that stands in the place of this one, as far as its successors are still there."""
    found = None
    following: str | None = id
    while following is not None and (row := session.one(PLACE, following)) is not None:
        found, following = following, row[0]
    return found
