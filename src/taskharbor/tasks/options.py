"""Options of a task: declared once with the task, overridden for a call with `.options(…)`, checked at once.

The check is the one that a store makes, so that a wrong option fails in its own line and not with the first job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from inspect import cleandoc
from typing import Any, TypedDict, TypeVar

import msgspec

from taskharbor.model.bounds import check_job
from taskharbor.model.job import EPOCH, OPERATIONS_QUEUE
from taskharbor.model.times import Duration, duration, moment
from taskharbor.model.validation import refuse_unknown
from taskharbor.policy.retry import (
    RETRY_KEY,
    UNRECOVERABLE_KEY,
    RetryPolicy,
    check_policy,
    write_retry,
    write_unrecoverable,
)
from taskharbor.tasks.flow_metadata import RESERVED, check_type
from taskharbor.tasks.handler import exception_types
from taskharbor.tasks.migration_hints import OF_OPTIONS
from taskharbor.tasks.prepare import UNSET, Options, record_of

PROCESS_KEY = "taskharbor.process"
"""Carries a call's own `process=`: "1" or "0". Without it the handler's declaration decides."""

_OF_THE_HANDLER = frozenset({"process", "retry", "unrecoverable"})


class CallOptions(TypedDict, total=False):
    """The options of `@harbor.task(…)`, and of `.options(…)` for a call. Durations are seconds or a timedelta.

    Options:
        name: The job type, by which a worker finds the function. Default: the module and name of the function.
        queue: The queue that its jobs go to. Default: the harbor's `default_queue`, which is "default".
        max_attempts: The number of failures after which a job is dead. Default: 5.
        retry: When a failed job runs again: `Exponential()`, `Linear(…)`, `Fixed(…)`, or a function
            `(attempts, error) -> seconds`, where None means that the job is dead. A function of your own can only be
            declared with the task. Default: the worker's, which is `Exponential()`.
        unrecoverable: Exception types after which a job is dead at once, without further attempts.
        timeout: How long one execution may take; then it fails with TimeoutError. A coroutine is cancelled then, and
            with `process=True` the child process is killed. A plain function cannot be stopped: it goes on in its
            thread, even beside its next attempt, until it ends or tests `ctx.cancelled`. Default: no limit.
        process: True: run it in a child process, for code that needs a whole core or may crash. The function must be
            importable by its module and name. Default: False.
        priority: Higher first, among the jobs of a queue that have no group. Default: 0.
        delay: Do not start before this much time has passed.
        run_at: Do not start before this moment: a datetime with a time zone. Give `delay` or `run_at`, not both.
        idempotency_key: If the queue knows a job with this key, nothing is stored, and the handle is that job's.
        group: Jobs of a queue with the same group start in order, at most `group_limit` of them at once.
        group_limit: How many jobs of the group may run at once. Default: 1. The first job that gives one decides.
        metadata: Text by name, stored with the job for your own use. It is added to what the task declares.
        connection: Your own database connection: the job is stored in its transaction, and exists once you commit.
            Only on `sqlite://` and `postgresql://`.
    """

    name: str
    retry: RetryPolicy
    unrecoverable: type[BaseException] | Iterable[type[BaseException]]
    queue: str
    priority: int
    max_attempts: int
    timeout: Duration | None
    delay: Duration | None
    run_at: datetime | None
    idempotency_key: str | None
    group: str | None
    group_limit: int
    metadata: Mapping[str, str]
    connection: Any
    process: bool


class TaskOptions(CallOptions, total=False):
    """The options of `@harbor.task(…)`: those of a call, and `raw`, which `Harbor.task` explains."""

    raw: bool


KNOWN = tuple(sorted(CallOptions.__annotations__))

F = TypeVar("F", bound=Callable[..., Any])


def lists_options(function: F) -> F:
    """Add the list of options to the docstring of a function that takes them, so that `help` shows it."""
    return with_list(function, CallOptions.__doc__)


def with_list(function: F, explained: str | None) -> F:
    """Add the list of options in one docstring to that of a function."""
    if function.__doc__ and explained:  # both are None under `python -OO`
        listed = cleandoc(explained).partition("\nOptions:\n")[2]
        function.__doc__ = f"{cleandoc(function.__doc__)}\n\nOptions:\n{listed}"
    return function


def declared(given: Mapping[str, Any], task: str) -> Options:
    """The options of a declaration, without `name` and those of the handler: `retry`, `unrecoverable`, `process` and
    `raw`."""
    refuse_unknown(task, given, tuple(sorted(TaskOptions.__annotations__)), OF_OPTIONS)
    own = {name: value for name, value in given.items() if name not in ("name", "raw", *_OF_THE_HANDLER)}
    return change(UNSET, own, task)


def change(options: Options, given: Mapping[str, Any], task: str, *, process: bool = False) -> Options:
    """The options with changes; TypeError or ValueError for an invalid one.

    `process` is what the handler was declared with: only a call that differs from it carries that in its metadata.
    """
    refuse_unknown(task, given, KNOWN, OF_OPTIONS)
    changes = {name: _plain(given[name]) for name in given if name in Options.__struct_fields__}
    if changes.get("delay") is not None and changes.get("run_at") is not None:
        raise ValueError(f"{task}: expected delay or run_at, got both; give one")
    for name in ("delay", "timeout"):
        if changes.get(name) is not None:
            changes[name] = duration(changes[name], f"{task}: {name}", zero=name == "delay")
    if changes.get("delay") is not None:
        changes["run_at"] = None
    if changes.get("run_at") is not None:
        changes["run_at"] = moment(changes["run_at"], f"{task}: run_at")
        changes["delay"] = None
    if "metadata" in changes:
        changes["metadata"] = {**options.metadata, **_metadata(changes["metadata"], task)}
    if not _OF_THE_HANDLER.isdisjoint(given):
        changes["metadata"] = {**changes.get("metadata", options.metadata), **_handler_metadata(given, task)}
        if given.get("process") is process:
            changes["metadata"].pop(PROCESS_KEY)
    changed: Options = msgspec.structs.replace(options, **changes)
    asked = changes.get("max_attempts")
    if type(asked) is int and asked < 1:  # 0 stands for "not given" in a record
        raise ValueError(f"{task}: max_attempts: expected 1 or more, got {asked}")
    _check(changed, task)
    return changed


def _handler_metadata(given: Mapping[str, Any], task: str) -> dict[str, str]:
    """A call's changes of its handler, as the worker reads them from the job's metadata."""
    metadata = {}
    if "process" in given:
        metadata[PROCESS_KEY] = "1" if flag(given["process"], f"{task}: process") else "0"
    if "retry" in given:
        check_policy(given["retry"], f"{task}: retry")
        try:
            metadata[RETRY_KEY] = write_retry(given["retry"])
        except TypeError as error:
            raise TypeError(f"{task}: retry: {error}") from None
    if "unrecoverable" in given:
        metadata[UNRECOVERABLE_KEY] = write_unrecoverable(
            exception_types(given["unrecoverable"], f"{task}: unrecoverable")
        )
    return metadata


def flag(value: Any, what: str) -> bool:
    """The value if it is True or False, else TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{what}: expected True or False, got {type(value).__name__}")
    return value


def _metadata(value: Any, task: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{task}: metadata: expected a mapping of text to text, got {type(value).__name__}")
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, str):
            wrong = item if isinstance(key, str) else key
            raise TypeError(
                f"{task}: metadata: expected text to text, got {type(wrong).__name__}; convert it with str()"
            )
        if key.startswith(RESERVED):
            raise ValueError(
                f"{task}: metadata: keys that begin with {RESERVED!r} belong to the core, got {key!r}; rename it"
            )
    return dict(value)


def _check(options: Options, task: str) -> None:
    """The store's own check of a record with these options; TypeError where a type is wrong."""
    for name, kind in (("priority", int), ("max_attempts", int), ("group_limit", int)):
        value = getattr(options, name)
        if type(value) is not kind:
            raise TypeError(f"{task}: {name}: expected a whole number, got {type(value).__name__}")
    for name in ("name", "queue", "idempotency_key", "group"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{task}: {name}: expected text, got {type(value).__name__}")
    if options.queue == OPERATIONS_QUEUE:
        raise ValueError(f"{task}: queue: {OPERATIONS_QUEUE!r} is for the core's own jobs; give another name")
    try:
        job_type = "check" if options.name is None else options.name
        check_type(job_type)
        check_job(
            record_of(options, id="check", type=job_type, payload=b"", queue="check", created_at=EPOCH, run_at=None)
        )
    except ValueError as error:
        raise type(error)(f"{task}: {error}") from None


def _plain(value: Any) -> Any:
    """A name that is a member of a StrEnum counts as its text."""
    return str.__str__(value) if isinstance(value, str) else value
