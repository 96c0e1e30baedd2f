"""Enqueueing in two steps: a plan, which may refuse and changes nothing, and carrying it out, which cannot fail.

So a call stores all or none, and an outcome with a spawn is refused before anything of it has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from taskharbor.drivers.contract import FLOW_CANCELLED_REASON
from taskharbor.drivers.graph import refuse_cycle, refuse_cycle_by_handover, unknown_dependency
from taskharbor.drivers.memory.flows import link
from taskharbor.drivers.memory.records import BLOCKED, CANCELLED, DONE, Entry, ticks
from taskharbor.drivers.memory.store import Store
from taskharbor.model.bounds import check_job
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.lease import Enqueued


class Plan:
    """What a call will store, and what it will answer."""

    __slots__ = ("aliases", "answers", "fresh")

    def __init__(self) -> None:
        self.answers: list[Enqueued] = []
        self.fresh: dict[str, JobRecord] = {}  # by id, in the order of the call
        self.aliases: dict[str, str] = {}  # the id of a job that is known by its key → the known id


def plan(store: Store, jobs: Sequence[JobRecord], now: datetime, max_payload: int) -> Plan:
    """Check a call; InvalidJob if anything of it cannot be stored."""
    for job in jobs:
        check_job(job, max_payload)
    made = Plan()
    keys: dict[tuple[str, str], str] = {}
    edges = False
    for job in jobs:
        known = _known(store, made, keys, job)
        if known is None:
            made.fresh[job.id] = _fresh(job, now)
            if job.idempotency_key is not None:
                keys[job.queue, job.idempotency_key] = job.id
            edges = edges or bool(job.depends_on)
        made.answers.append(Enqueued(known or job.id, known is not None))
    if edges:
        for id, record in made.fresh.items():
            if record.depends_on:
                depends_on = tuple([_resolve(store, made, id, dependency) for dependency in record.depends_on])
                if depends_on != record.depends_on:
                    made.fresh[id] = replace(record, depends_on=depends_on)
        refuse_cycle({id: record.depends_on for id, record in made.fresh.items()})
    return made


def carry_out(store: Store, made: Plan, now: datetime) -> None:
    """Store what was planned, as one."""
    moment = ticks(now)
    entries = [store.add(record) for record in made.fresh.values()]
    for entry in entries:
        record = entry.record
        if record.depends_on:
            link(store, entry)
        if record.flow_id is not None and store.flows[record.flow_id].cancelled:
            record = replace(record, reason=FLOW_CANCELLED_REASON, finished_at=now)
            store.finish(entry, CANCELLED, record, moment)
        elif entry.open:
            entry.queue.stand(entry, BLOCKED)
        else:
            entry.queue.join(entry, moment, entry.stored)


def refuse_handover(store: Store, made: Plan, new: str, dependents: list[Entry]) -> None:
    """InvalidJob if a cycle would come of it."""

    def waits_for(id: str) -> Sequence[str]:
        if id in made.fresh:
            return made.fresh[id].depends_on
        entry = store.entries.get(id)
        return entry.record.depends_on if entry is not None and entry.standing != DONE else ()

    refuse_cycle_by_handover(new, {dependent.record.id for dependent in dependents}, waits_for)


def _known(store: Store, made: Plan, keys: dict[tuple[str, str], str], job: JobRecord) -> str | None:
    # The id decides before the key.
    if job.id in store.entries or job.id in made.fresh:
        return job.id
    if job.id in made.aliases:
        return made.aliases[job.id]
    key = job.idempotency_key
    if key is None:
        return None
    queue = store.queues.get(job.queue)
    known = queue.keys.get(key) if queue is not None else None
    if known is None:
        known = keys.get((job.queue, key))
    if known is not None:
        made.aliases[job.id] = known
    return known


def _fresh(job: JobRecord, now: datetime) -> JobRecord:
    """The record with what only the store writes at its start; mostly there is nothing to change but `created_at`."""
    if (
        job.deliveries
        or job.lost
        or job.handed_to is not None
        or job.failed_at is not None
        or job.finished_at is not None
        or job.result is not None
        or job.last_error
        or job.reason
        or job.metadata
    ):
        job = replace(
            job,
            deliveries=0,
            lost=0,
            handed_to=None,
            failed_at=None,
            finished_at=None,
            result=None,
            last_error="",
            reason="",
            metadata=dict(job.metadata),  # the caller's dict stays the caller's
        )
    return replace(job, created_at=now) if job.created_at == EPOCH else job


def _resolve(store: Store, made: Plan, id: str, dependency: str) -> str:
    """The id under which a dependency is stored, or will be."""
    dependency = made.aliases.get(dependency, dependency)
    if dependency in made.fresh:
        return dependency
    entry = store.entries.get(dependency)
    if entry is None:
        raise unknown_dependency(id, dependency)
    return last_of(store, entry).record.id


def last_of(store: Store, entry: Entry) -> Entry:
    """The job that stands in the place of this one, as far as its successors are still there."""
    while entry.record.handed_to is not None and (heir := store.entries.get(entry.record.handed_to)) is not None:
        entry = heir
    return entry
