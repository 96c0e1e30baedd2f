"""Enqueueing as a program: checked here, stored by one statement. It runs on our connections and on the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from taskharbor.drivers.postgres.records import base64_of, micros, to_json, to_row
from taskharbor.drivers.postgres.statement import Program, Statement, array, call, quoted, value
from taskharbor.model.bounds import check_job
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued

MAX_CALL = (
    128 * 1024 * 1024
)  # bytes of payloads: one call is one statement, and all of it stands in memory several times


def enqueue(
    schema: str, jobs: Sequence[JobRecord], now: datetime, max_payload: int, *, gently: bool = False
) -> Program[list[Enqueued]]:
    """Store jobs, all or none. `gently`: on a connection whose transaction may stay open."""
    size = 0
    for job in jobs:
        check_job(job, max_payload)
        size += len(job.payload)
    if size > MAX_CALL:
        raise InvalidJob(
            f"payload: expected at most {MAX_CALL >> 20} MiB together in one call, got {size >> 20}; use several calls"
        )
    if not jobs:
        return []
    if len(jobs) == 1 and _ordinary(jobs[0]):
        rows = yield _one(schema, jobs[0], now, gently)
        return [Enqueued(jobs[0].id, rows[0][0])]
    firsts: dict[str, JobRecord] = {}
    for job in jobs:
        firsts.setdefault(job.id, job)
    fresh = list(firsts.values())
    if any(job.depends_on for job in fresh):
        yield from _refuse_cycle(schema, fresh)
    rows = yield _statement(schema, fresh, now, gently)
    known: dict[str, str] = {}
    for id, answer in rows:
        if id is None:
            raise InvalidJob(answer)
        known[id] = answer
    answers, seen = [], set()
    for job in jobs:
        found = known.get(job.id)
        answers.append(Enqueued(found or job.id, found is not None or job.id in seen))
        seen.add(job.id)
    return answers


def _ordinary(job: JobRecord) -> bool:
    """Whether it is nothing but a job: no key, no dependencies, no flow, no limit for its group."""
    return job.idempotency_key is None and not job.depends_on and job.flow_id is None and not job.group_limit


def _one(schema: str, job: JobRecord, now: datetime, gently: bool) -> Statement:
    row = to_row(job, 0)
    return value(
        schema,
        "enqueue_one",
        (job.id, "text"),
        (job.queue, "text"),
        (job.type, "text"),
        (base64_of(job.payload), "text"),
        (row.run_at, "bigint"),
        (row.timeout, "bigint"),
        (job.priority, "integer"),
        (job.attempts, "integer"),
        (job.max_attempts, "integer"),
        (job.group, "text"),
        (row.metadata, "text"),
        (row.created_at, "bigint"),
        (micros(now), "bigint"),
        (gently, "boolean"),
    )


def _statement(schema: str, jobs: Sequence[JobRecord], now: datetime, gently: bool) -> Statement:
    keys: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    limits: list[dict[str, Any]] = []
    flows: dict[str, None] = {}
    queues: dict[str, None] = {}
    for place, job in enumerate(jobs):
        queues[job.queue] = None
        if job.idempotency_key is not None:
            key = base64_of(job.idempotency_key.encode())
            keys.append({"o": place, "id": job.id, "queue": job.queue, "key": key})
        if job.depends_on:
            edges += [{"id": job.id, "pos": number, "dep": id} for number, id in enumerate(job.depends_on)]
        if job.group is not None and job.group_limit > 0:
            limits.append({"o": place, "id": job.id, "queue": job.queue, "grp": job.group, "lim": job.group_limit})
        if job.flow_id is not None:
            flows[job.flow_id] = None
    return call(
        schema,
        "enqueue",
        (to_json([to_row(job, place) for place, job in enumerate(jobs)]), "text"),
        (to_json(keys) if keys else None, "text"),
        (to_json(edges) if edges else None, "text"),
        (to_json(limits) if limits else None, "text"),
        (array(list(flows)) if flows else None, "text"),
        (array(list(queues)), "text"),
        (micros(now), "bigint"),
        (gently, "boolean"),
        columns="id, known",
    )


def _refuse_cycle(schema: str, jobs: Sequence[JobRecord]) -> Program[None]:
    """InvalidJob if new jobs wait for themselves. Asks the store which are new only where they might."""
    by_key: dict[tuple[str, str], str] = {}
    merged: dict[str, str] = {}
    for job in jobs:
        if job.idempotency_key is not None:
            merged[job.id] = by_key.setdefault((job.queue, job.idempotency_key), job.id)
    if not _stuck(jobs, {}) and not (merged and _stuck(jobs, merged)):
        return
    rows = yield Statement(
        f"select r.id from {quoted(schema)}.records r where r.id in (select json_array_elements_text(cast(? as json)))",
        (array([job.id for job in jobs]),),
    )
    known_ids = {row[0] for row in rows}
    pairs = [
        {"id": job.id, "queue": job.queue, "key": base64_of(job.idempotency_key.encode())}
        for job in jobs
        if job.idempotency_key is not None
    ]
    rows = yield Statement(
        f"select g.id, k.id from {quoted(schema)}.keys k join json_to_recordset(cast(? as json)) "
        "as g(id text, queue text, key text) on k.queue = g.queue and k.key = decode(g.key, 'base64')",
        (to_json(pairs),),
    )
    known_keys = {row[0]: row[1] for row in rows}
    fresh: list[JobRecord] = []
    aliases: dict[str, str] = {}
    keys: dict[tuple[str, str], str] = {}
    for job in jobs:
        if job.id in known_ids:
            continue
        if job.idempotency_key is not None:
            known = known_keys.get(job.id) or keys.setdefault((job.queue, job.idempotency_key), job.id)
            if known != job.id:
                aliases[job.id] = known
                continue
        fresh.append(job)
    stuck = _stuck(fresh, aliases)
    if stuck:
        raise InvalidJob(f"depends_on: {stuck} waits for itself over its dependencies; leave one of the edges out")


def _stuck(jobs: Sequence[JobRecord], aliases: dict[str, str]) -> str | None:
    """Take away what waits for nothing, again and again; what is left waits for itself."""
    waits: dict[str, set[str]] = {aliases.get(job.id, job.id): set() for job in jobs}
    dependents: dict[str, list[str]] = {}
    for job in jobs:
        own = aliases.get(job.id, job.id)
        for dependency in job.depends_on:
            dependency = aliases.get(dependency, dependency)
            if dependency in waits and dependency not in waits[own]:
                waits[own].add(dependency)
                dependents.setdefault(dependency, []).append(own)
    counts = {id: len(inside) for id, inside in waits.items()}
    free = [id for id, count in counts.items() if not count]
    for id in free:
        for dependent in dependents.get(id, ()):
            counts[dependent] -= 1
            if not counts[dependent]:
                free.append(dependent)
    return next((id for id, count in counts.items() if count), None)
