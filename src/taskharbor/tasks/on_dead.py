"""Tasks that run when a job dies: `@harbor.on_dead("mail.*")`.

The job of such a task is stored in the transaction that puts the other one into the dead letter queue: once for each
death, and never for a death that was not recorded. The worker on which the job dies must declare the task. A job that
dies in such a task starts none, or two tasks could go on about each other for ever.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec.structs import replace

from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Fail
from taskharbor.tasks.annotations import hints_of, is_context
from taskharbor.tasks.context import log_about
from taskharbor.tasks.dependencies import declared_parameters
from taskharbor.tasks.flow_metadata import RESERVED

MAX_DEAD_PAYLOAD_BYTES = 32 * 1024
"""The record that the task receives has the payload of the dead job up to this size; a larger one is left out."""


class DeathWatch(msgspec.Struct, frozen=True):
    """A task that wants to know of deaths. `pattern`: the types of jobs, as in a shell; `make` returns its job."""

    pattern: str
    type: str
    make: Callable[[JobInfo, datetime], JobRecord]


class DeathWatches:
    """The tasks of a program that run when a job dies."""

    def __init__(self) -> None:
        self._watches: list[DeathWatch] = []

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch: DeathWatch) -> None:
        """Add one."""
        self._watches.append(watch)

    def is_death_task(self, type: str) -> bool:
        """Whether jobs of this type are those of a task that runs when a job dies."""
        return any(watch.type == type for watch in self._watches)

    def with_death_jobs(self, job: JobRecord, outcome: Fail, now: datetime) -> Fail:
        """The outcome together with the jobs that it starts. A job must die in any case, so nothing is raised."""
        if job.type.startswith(RESERVED) or self.is_death_task(job.type):
            return outcome
        watching = [watch for watch in self._watches if fnmatchcase(job.type, watch.pattern)]
        if not watching:
            return outcome
        info = dead_info(job, outcome, now)
        spawn = list(outcome.spawn)
        for watch in watching:
            try:
                spawn.append(watch.make(info, now))
            except BaseException as error:
                message = "job %s is dead, but the on_dead task %s could not be enqueued for it (%s)"
                log_about(job, logging.ERROR, message, job.id, watch.type, class_name(error))
        return replace(outcome, spawn=tuple(spawn))


def check_death_handler(function: Callable[..., Any]) -> None:
    """TypeError unless it takes exactly one annotated argument besides an optional JobContext."""
    name = getattr(function, "__qualname__", type(function).__name__)
    signature = inspect.signature(function)
    hints = hints_of(function, signature)
    injected = {each for each, *_ in declared_parameters(function, name).parameters}
    own = [each for each in signature.parameters.values() if each.name not in injected]
    taken = [each for each in own if not is_context(hints.get(each.name))]
    if len([each for each in taken if each.default is each.empty]) != 1:
        got = f"{name}({', '.join(each.name for each in taken)})"
        raise TypeError(f"on_dead: expected a function with one parameter for the dead job, got {got}")
    if taken[0].annotation is taken[0].empty:
        raise TypeError(f"on_dead: annotate the parameter {taken[0].name!r} of {name} with taskharbor.JobInfo")


def dead_info(job: JobRecord, outcome: Fail, now: datetime) -> JobInfo:
    """The job as it is once it is dead, without its trail, and without a payload that is too large to copy."""
    record = replace(
        job,
        attempts=outcome.attempts,
        reason=outcome.reason,
        last_error=outcome.last_error,
        error_class=outcome.error_class,
        fingerprint=outcome.fingerprint,
        failed_at=outcome.failed_at,
        finished_at=now,
        trail=b"",
        payload=job.payload if len(job.payload) <= MAX_DEAD_PAYLOAD_BYTES else b"",
    )
    return JobInfo(record, State.DLQ)
