"""From a step, a workflow or a request to what a schedule makes: checked and encoded where it is declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from taskharbor.client.request import JobRequest
from taskharbor.model.bounds import check_job, check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import EPOCH, JobRecord
from taskharbor.model.json_hooks import to_plain
from taskharbor.model.schedule import MAX_SCHEDULE_BYTES
from taskharbor.schedules.body import Definition, write_body
from taskharbor.schedules.changes import Declaration, created, declaration
from taskharbor.schedules.plan import slot_record
from taskharbor.schedules.rule import Rule
from taskharbor.tasks.failure_step import ON_FAILURE_KEY, read_steps, write_steps
from taskharbor.tasks.flow_metadata import LAUNCH_TYPE
from taskharbor.tasks.prepare import Options, TaskCall, record_of
from taskharbor.tasks.task import Step, Task, short_name
from taskharbor.tasks.workflow import Spawned, Workflow, failure_steps_of, write_workflow

if TYPE_CHECKING:
    from taskharbor.store.session import Store

Scheduled: TypeAlias = Step[Any] | Workflow | JobRequest
"""What a schedule can make: a step such as `nightly.s(region="eu")`, a workflow, or a job by the name of its type."""

_ONCE = {
    "idempotency_key": "every slot but the first would find the first one's job",
    "delay": "a slot has its own moment; choose another cron or every",
    "run_at": "a slot has its own moment; choose another cron or every",
    "connection": "a worker stores the job, in no transaction of yours",
}

_plain = msgspec.json.Encoder(enc_hook=to_plain, order="deterministic").encode


def declared(store: Store, name: str, what: Scheduled | object, rule: Rule) -> Declaration:
    """A schedule as it was given; ValueError or TypeError for what cannot be scheduled."""
    check_name(name, "schedule: name")
    if isinstance(what, Step):
        return _step(store, name, what, rule)
    if isinstance(what, Workflow):
        return _workflow(store, name, what, rule)
    if isinstance(what, JobRequest):
        return _request(store, name, what, rule)
    hint = f"write {short_name(what)}.s(…)" if isinstance(what, Task) else "make one with task.s(…)"
    raise TypeError(f"schedule {name!r}: expected a step or a workflow, got {type(what).__name__}; {hint}")


def _step(store: Store, name: str, step: Step[Any], rule: Rule) -> Declaration:
    task = step._task
    if not store.is_same(task._client._store):
        raise ValueError(
            f"schedule {name!r}: expected a step of a task that is declared on this harbor, got {task.name!r} of "
            "another one"
        )
    _refuse_once(name, task.name, task._options)
    call = step._call()
    return _declaration(name, _record(store, call), rule, _same(step._arguments, call.payload))


def _record(store: Store, call: TaskCall) -> JobRecord:
    """The job of any slot: its id and its moments come later."""
    return record_of(
        call.options,
        id="slot",
        type=call.type,
        payload=call.payload,
        queue=store.default_queue,
        created_at=EPOCH,
        run_at=None,
    )


def _request(store: Store, name: str, request: JobRequest, rule: Rule) -> Declaration:
    if request.id is not None:
        raise ValueError(f"schedule {name!r}: id: expected none, because every slot has a job of its own")
    call = request.call(store.codec)
    _refuse_once(name, call.type, call.options)
    return _declaration(name, _record(store, call), rule, _same(request.payload, call.payload))


def _workflow(store: Store, name: str, flow: Workflow, rule: Rule) -> Declaration:
    owner: Store | None = getattr(flow, "_store", None)
    if owner is not None and not store.is_same(owner):
        raise ValueError(
            f"schedule {name!r}: expected a workflow of tasks that are declared on this harbor, got one of another"
        )
    if getattr(flow, "_connection", None) is not None:
        raise _no_such_option(name, "the workflow", "connection")
    launch = JobRecord(id="launch", type=LAUNCH_TYPE, queue=store.default_queue)
    spawned = flow._compile(launch, EPOCH)
    for job in spawned.jobs:
        for option in ("idempotency_key", "run_at"):
            if getattr(job, option) is not None:
                raise _no_such_option(name, job.type, "delay or run_at" if option == "run_at" else option)
    for step in failure_steps_of(spawned.jobs):
        for option in ("idempotency_key", "run_at"):
            if getattr(step, option) is not None:
                raise _no_such_option(name, step.type, option)
    first = next(job for job in spawned.jobs if not job.depends_on)
    payload = write_workflow(spawned)
    launch = msgspec.structs.replace(launch, queue=first.queue, payload=payload, priority=first.priority)
    return _declaration(name, launch, rule, _same_workflow(flow, spawned, payload))


def _declaration(name: str, record: JobRecord, rule: Rule, arguments: bytes) -> Declaration:
    fields = {field: getattr(record, field) for field in Definition.__struct_fields__ if field != "rule"}
    definition = Definition(**fields, rule=rule)
    try:
        check_job(slot_record(name, definition, rule, EPOCH, EPOCH))
    except InvalidJob as error:
        raise InvalidJob(f"schedule {name!r}: {error}") from None
    given = declaration(name, definition, arguments)
    size = len(write_body(created(given, EPOCH, declared=True)))
    most = MAX_SCHEDULE_BYTES - ROOM_BYTES
    if size > most:
        raise InvalidJob(
            f"schedule {name!r}: expected arguments or a workflow of at most {most} bytes together with its options, "
            f"got {size}; schedule a task that loads the data, or returns the workflow"
        )
    return given


ROOM_BYTES = 8 * 1024
"""Of a row, for the edit and the state that come to the definition later."""


def _same(arguments: Any, payload: bytes) -> bytes:
    """Arguments as bytes that are the same in every process: the order of a set is not, and a codec may encrypt."""
    try:
        return _plain(arguments)
    except (TypeError, ValueError, RecursionError):
        return payload


def _same_workflow(flow: Workflow, spawned: Spawned, payload: bytes) -> bytes:
    """A workflow as bytes that are the same in every process: its jobs without payloads, then its steps' arguments."""
    if not hasattr(flow, "_parts"):  # a workflow of another kind: only its jobs are known
        return payload
    jobs = tuple(_without_payloads(job) for job in spawned.jobs)
    arguments = [_same(step._arguments, _encoded(step)) for step in _steps(flow)]
    return write_workflow(Spawned(jobs, spawned.handover)) + _plain(arguments)


def _steps(part: Any) -> Iterator[Step[Any]]:
    """The steps of a flow in their order, failure steps included."""
    if isinstance(part, Step):
        yield part
        return
    for inner in part._parts:
        yield from _steps(inner)
    if part._on_failure is not None:
        yield part._on_failure


def _encoded(step: Step[Any]) -> bytes:
    return step._task.handler.signature.encode(step._arguments, partial=bool(step._lacking()))


def _without_payloads(job: JobRecord) -> JobRecord:
    """A job of a workflow without its payload and those of the failure steps that it carries."""
    metadata = job.metadata
    if ON_FAILURE_KEY in metadata:
        steps = [msgspec.structs.replace(step, payload=b"") for step in read_steps(metadata[ON_FAILURE_KEY])]
        metadata = {**metadata, ON_FAILURE_KEY: write_steps(steps)}
    return msgspec.structs.replace(job, payload=b"", metadata=metadata)


def _refuse_once(name: str, job_type: str, options: Options) -> None:
    for option in _ONCE:
        if getattr(options, option) is not None:
            raise _no_such_option(name, job_type, option)


def _no_such_option(name: str, job_type: str, option: str) -> ValueError:
    why = _ONCE.get(option, _ONCE["run_at"])
    return ValueError(f"schedule {name!r}: {job_type}: expected no {option}, because {why}")
