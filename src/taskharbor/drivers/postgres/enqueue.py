"""Enqueueing as a program: checked here, stored by one statement, on our connections and on the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.planning import Facts, JobFacts, Lookup, Plan, Planning, in_cycle, plan_jobs
from taskharbor.drivers.postgres.records import StoredState, base64_of, to_json, to_row
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, quoted
from taskharbor.model.bounds import check_enqueue
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.times import to_us

_ENQUEUE_ONE = (
    "enqueue_one(text, text, text, text, bigint, bigint, integer, integer, integer, text, text, bigint, "
    "bigint, boolean)"
)
MAX_CALL_BYTES = 128 << 20  # of payloads: one call is one statement, of which the memory holds several copies


def enqueue(
    schema: str, jobs: Sequence[JobRecord], now: datetime, max_payload: int, *, callers_transaction: bool = False
) -> Program[list[Enqueued]]:
    """Store jobs, all or none. `callers_transaction`: on the caller's connection, whose transaction may stay open."""
    check_enqueue(jobs, max_payload)
    size = sum([len(job.payload) for job in jobs])
    if size > MAX_CALL_BYTES:
        raise InvalidJob(
            f"payload: expected at most {MAX_CALL_BYTES >> 20} MiB together in one call, got {size >> 20}; "
            "use several calls"
        )
    if not jobs:
        return []
    if len(jobs) == 1 and _is_plain(jobs[0]):
        rows = yield _enqueue_one(schema, jobs[0], now, callers_transaction)
        return [Enqueued(jobs[0].id, rows[0][0])]
    firsts: dict[str, JobRecord] = {}
    for job in jobs:
        firsts.setdefault(job.id, job)
    fresh = list(firsts.values())
    if any(job.depends_on for job in fresh):
        yield from _refuse_cycle(schema, fresh)
    rows = yield _enqueue_many(schema, fresh, now, callers_transaction)
    known: dict[str, str] = {}
    for id, known_id in rows:
        if id is None:
            raise InvalidJob(known_id)  # the message
        known[id] = known_id
    results, seen = [], set()
    for job in jobs:
        known_id = known.get(job.id)
        results.append(Enqueued(known_id or job.id, known_id is not None or job.id in seen))
        seen.add(job.id)
    return results


def _is_plain(job: JobRecord) -> bool:
    """Whether a job has no key, no dependencies, no flow, no limit for its group and no time for which it is kept."""
    return (
        job.idempotency_key is None
        and not job.depends_on
        and job.flow_id is None
        and not job.group_limit
        and job.keep_for is None
    )


def _enqueue_one(schema: str, job: JobRecord, now: datetime, callers_transaction: bool) -> Statement:
    row = to_row(job, 0)
    given = (
        job.id, job.queue, job.type, base64_of(job.payload), row.run_at, row.timeout, job.priority, job.attempts,
        job.max_attempts, job.group, row.metadata, row.created_at, to_us(now), callers_transaction,
    )  # fmt: skip
    return call(schema, _ENQUEUE_ONE, *given)


def _enqueue_many(schema: str, jobs: Sequence[JobRecord], now: datetime, callers_transaction: bool) -> Statement:
    keys: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    group_limits: list[dict[str, Any]] = []
    flows: dict[str, None] = {}
    queues: dict[str, None] = {}
    for position, job in enumerate(jobs):
        queues[job.queue] = None
        if job.idempotency_key is not None:
            key = base64_of(job.idempotency_key.encode())
            keys.append({"o": position, "id": job.id, "queue": job.queue, "key": key})
        if job.depends_on:
            edges += [{"id": job.id, "pos": number, "dep": id} for number, id in enumerate(job.depends_on)]
        if job.group is not None and job.group_limit > 0:
            limit = {"queue": job.queue, "grp": job.group, "lim": job.group_limit}
            group_limits.append({"o": position, "id": job.id, **limit})
        if job.flow_id is not None:
            flows[job.flow_id] = None
    return call(
        schema,
        "enqueue(text, text, text, text, text, text, bigint, boolean)",
        to_json([to_row(job, position) for position, job in enumerate(jobs)]),
        to_json(keys) if keys else None,
        to_json(edges) if edges else None,
        to_json(group_limits) if group_limits else None,
        array(list(flows)) if flows else None,
        array(list(queues)),
        to_us(now),
        callers_transaction,
        columns="id, known",
    )


def _refuse_cycle(schema: str, jobs: Sequence[JobRecord]) -> Program[None]:
    """InvalidJob if new jobs wait for themselves. It asks the store which jobs are new only if some might."""
    waits_for = {job.id: job.depends_on for job in jobs}
    if in_cycle(waits_for) is None and in_cycle(_merged_by_key(jobs)) is None:
        return
    planning: Planning[Plan] = plan_jobs(jobs)
    try:
        lookup = next(planning)
        while True:
            lookup = planning.send((yield from _look_up(schema, lookup)))
    except StopIteration:
        return  # the server plans again, under its locks


def _merged_by_key(jobs: Sequence[JobRecord]) -> dict[str, set[str]]:
    """Which jobs wait for which, if jobs with the same idempotency key are one job."""
    by_key: dict[tuple[str, str], str] = {}
    aliases = {
        job.id: by_key.setdefault((job.queue, job.idempotency_key), job.id)
        for job in jobs
        if job.idempotency_key is not None
    }
    merged: dict[str, set[str]] = {}
    for job in jobs:
        waits = merged.setdefault(aliases.get(job.id, job.id), set())
        waits.update(aliases.get(id, id) for id in job.depends_on)
    return merged


def _look_up(schema: str, lookup: Lookup) -> Program[Facts]:
    """The jobs and idempotency keys that a plan asks for."""
    rows = yield Statement(
        f"select r.id, r.state, r.handed_to, r.depends_on from {quoted(schema)}.records r "
        "where r.id in (select json_array_elements_text(cast(? as json)))",
        (array(list(lookup.ids)),),
    )
    jobs = {
        id: JobFacts(state == StoredState.DONE, handed_to, tuple(depends_on or ()))
        for id, state, handed_to, depends_on in rows
    }
    given = [{"queue": queue, "key": base64_of(key.encode())} for queue, key in lookup.keys]
    rows = yield Statement(
        f"select k.queue, k.key, k.id from {quoted(schema)}.keys k join json_to_recordset(cast(? as json)) "
        "as g(queue text, key text) on k.queue = g.queue and k.key = decode(g.key, 'base64')",
        (to_json(given),),
    )
    return Facts(jobs, {(queue, bytes(key).decode()): id for queue, key, id in rows})
