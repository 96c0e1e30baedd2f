"""The step that a flow runs when it fails. Every job of the flow carries it; the job that dies stores it.

It is stored in the transaction that puts the job into the dead letter queue. Its id was made with the flow, so a second
job that dies, or the same one after a requeue, finds it stored already: there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from taskharbor.model.codec import Codec
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Fail
from taskharbor.model.safe_repr import shows
from taskharbor.model.schedule import origin_of
from taskharbor.model.times import round_up
from taskharbor.model.trace import trace_of, with_trace
from taskharbor.tasks.context import log_about
from taskharbor.tasks.flow_metadata import ON_FAILURE_ROLE, ROLE_KEY, read_metadata
from taskharbor.tasks.results import complete

ON_FAILURE_KEY = "taskharbor.on_failure"
MAX_STEPS_BYTES = 8 * 1024
COPIED_OPTIONS = ("timeout", "priority", "max_attempts", "idempotency_key", "group", "group_limit")
"""The options that a failure step has from its task, and its job from the step."""


@shows("flow_id", "job_id", "job_type")
class FlowFailure(msgspec.Struct, frozen=True):
    """The reason why a flow failed: the argument for the open parameter of an `on_failure` step."""

    flow_id: str  # the flow that failed
    job_id: str  # the job that died
    job_type: str  # its type
    reason: str  # why it died


@shows("id", "type", "queue")
class FailureStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure step as the jobs of its flow carry it. `into`: the parameter that receives a FlowFailure."""

    id: str
    type: str
    queue: str
    payload: bytes = b"{}"
    into: str | None = None
    delay: timedelta | None = None
    run_at: datetime | None = None
    timeout: timedelta | None = None
    priority: int = 0
    max_attempts: int = 0
    idempotency_key: str | None = None
    group: str | None = None
    group_limit: int = 0
    metadata: dict[str, str] = {}


_steps: msgspec.json.Decoder[tuple[FailureStep, ...]] = msgspec.json.Decoder(tuple[FailureStep, ...])


def write_steps(steps: Sequence[FailureStep]) -> str:
    """The metadata entry of a job: the steps of its part, and of the parts around it. ValueError if too long."""
    text = msgspec.json.encode(steps)
    if len(text) > MAX_STEPS_BYTES:
        raise ValueError(
            f"on_failure: every job of the flow carries its steps, so they may have {MAX_STEPS_BYTES} bytes together, "
            f"got {len(text)}; give them shorter arguments, such as a key to look the rest up by"
        )
    return text.decode()


def read_steps(text: str) -> tuple[FailureStep, ...]:
    """The steps that `write_steps` wrote, or ValueError."""
    return read_metadata(_steps, text)


def with_failure_steps(job: JobRecord, outcome: Fail, codec: Codec, now: datetime) -> Fail:
    """The outcome with the steps that it releases."""
    return msgspec.structs.replace(outcome, spawn=failure_steps(job, outcome.reason, codec, now))


def failure_steps(job: JobRecord, reason: str, codec: Codec, now: datetime) -> tuple[JobRecord, ...]:
    """The jobs to store when a job that carries steps is dead; none if its metadata is damaged.

    The job must end in any case, so nothing is raised: neither for metadata that is nested too deeply, nor for a codec
    that fails.
    """
    try:
        steps = read_steps(job.metadata[ON_FAILURE_KEY])
        return tuple(_record(step, job, reason, codec, now) for step in steps)
    except BaseException as error:
        message = "job %s: its metadata %s cannot be read (%s): it dies without a failure step"
        log_about(job, logging.ERROR, message, job.id, ON_FAILURE_KEY, class_name(error))
        return ()


def _record(step: FailureStep, job: JobRecord, reason: str, codec: Codec, now: datetime) -> JobRecord:
    payload = step.payload
    if step.into is not None:
        failure = FlowFailure(job.flow_id or job.id, job.id, job.type, reason)
        payload = complete(codec, payload, step.into, codec.encode(msgspec.to_builtins(failure)))
    metadata = {**step.metadata, **origin_of(job.metadata), ROLE_KEY: ON_FAILURE_ROLE}
    return JobRecord(
        **{name: getattr(step, name) for name in ("id", "type", "queue", *COPIED_OPTIONS)},
        payload=payload,
        run_at=step.run_at if step.delay is None else round_up(now + step.delay),
        flow_id=job.flow_id,
        metadata=with_trace(metadata, trace_of(job.metadata)),
        created_at=now,
    )
