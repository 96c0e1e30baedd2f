"""Workflows as a worker knows them, without importing `taskharbor.flow`: one that a handler returned, and the job that
starts a scheduled one.

That job has a built-in type, and its payload is the workflow as it was compiled. A schedule stores one for each slot.
The worker that reserves it runs no handler: the jobs of the workflow take its place, each time with new ids, as if a
handler had returned the workflow. So a handle of the job follows it to the end of the workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeGuard

import msgspec
from msgspec.structs import replace

from taskharbor.model.ids import new_id
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.safe_repr import shows
from taskharbor.model.schedule import origin_of
from taskharbor.model.times import to_ms
from taskharbor.model.trace import trace_of, with_trace
from taskharbor.tasks.failure_step import ON_FAILURE_KEY, read_steps, write_steps
from taskharbor.tasks.flow_metadata import JOIN_SUFFIX, JOIN_TYPE


class Spawned(msgspec.Struct, frozen=True):
    """The jobs of a workflow that takes a job's place, and the one of them whose result stands for the whole."""

    jobs: tuple[JobRecord, ...]
    handover: str


class Workflow:
    """What a handler may return to let a workflow take the place of its job.

    A base class, not a Protocol: an object of another library that has a method of that name is a plain result.
    """

    __slots__ = ()

    def _compile(self, parent: JobRecord, now: datetime) -> Spawned:
        """The workflow as job records, stored in the transaction that settles the parent."""
        raise NotImplementedError


def is_workflow(value: object) -> TypeGuard[Workflow]:
    """Whether it is a workflow, by its class alone: reading an attribute of an unbound proxy would raise."""
    return issubclass(type(value), Workflow)


@shows("end")
class CompiledWorkflow(msgspec.Struct, frozen=True):
    """The jobs of a workflow, each under its place in the list as its id, and the place of the one that ends it."""

    jobs: tuple[dict[str, Any], ...]  # the fields of JobRecord that differ from their defaults
    end: str


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(CompiledWorkflow).decode
_DEFAULTS = msgspec.to_builtins(JobRecord(id="", type=""))


def write_workflow(spawned: Spawned) -> bytes:
    """The payload of a launch: the same for the same workflow, whatever ids its jobs were given."""
    places = {job.id: str(place) for place, job in enumerate(spawned.jobs)}
    steps = dict[str, str]()  # ids of failure steps → their places
    jobs = tuple(_fields(_renamed(job, places, steps, created_at=EPOCH, flow_id=None)) for job in spawned.jobs)
    return _encode(CompiledWorkflow(jobs, places[spawned.handover]))


def launched(launch: JobRecord, now: datetime) -> Spawned:
    """The jobs that take the place of a launch; ValueError if its payload is not a workflow."""
    workflow = _decode(launch.payload)
    jobs = [msgspec.convert(fields, JobRecord) for fields in workflow.jobs]
    ids = {job.id: new_id(to_ms(now)) + (JOIN_SUFFIX if job.type == JOIN_TYPE else "") for job in jobs}
    if workflow.end not in ids:
        raise ValueError("expected the place of one of its jobs as its end")
    steps = dict[str, str]()
    flow_id = new_id(to_ms(now))
    records = [_renamed(job, ids, steps, created_at=now, flow_id=flow_id, now=now) for job in jobs]
    origin, trace = origin_of(launch.metadata), trace_of(launch.metadata)
    return Spawned(
        tuple(replace(job, metadata=with_trace({**job.metadata, **origin}, trace)) for job in records),
        ids[workflow.end],
    )


def _renamed(
    job: JobRecord,
    ids: dict[str, str],
    steps: dict[str, str],
    *,
    created_at: datetime,
    flow_id: str | None,
    now: datetime | None = None,
) -> JobRecord:
    """A job of a workflow under another id. `steps`: the new ids of failure steps, which several jobs carry."""
    metadata = job.metadata
    if ON_FAILURE_KEY in metadata:
        carried = read_steps(metadata[ON_FAILURE_KEY])
        for step in carried:
            steps.setdefault(step.id, str(len(steps)) if now is None else new_id(to_ms(now)))
        renamed = tuple(replace(step, id=steps[step.id]) for step in carried)
        metadata = {**metadata, ON_FAILURE_KEY: write_steps(renamed)}
    return replace(
        job,
        id=ids[job.id],
        depends_on=tuple(ids[id] for id in job.depends_on),
        metadata=metadata,
        created_at=created_at,
        flow_id=flow_id,
    )


def _fields(job: JobRecord) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(job)
    return {name: value for name, value in plain.items() if value != _DEFAULTS[name] or name in ("id", "type")}


def failure_steps_of(jobs: Sequence[JobRecord]) -> list[Any]:
    """The failure steps that the jobs of a workflow carry."""
    texts = {job.metadata[ON_FAILURE_KEY] for job in jobs if ON_FAILURE_KEY in job.metadata}
    return [step for text in texts for step in read_steps(text)]
