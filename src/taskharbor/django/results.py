"""A job as Django's `TaskResult`: its status, its arguments as they were given, and every execution.

    blocked, scheduled, ready → READY     inflight → RUNNING     done → SUCCESSFUL     dlq, cancelled → FAILED

Arguments are stored by name, like those of every other job. How many were given by position is in the metadata.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import taskharbor
from taskharbor.django.api import InvalidTask, Task, TaskError, TaskResult, TaskResultStatus
from taskharbor.model.error_class import full_error_name
from taskharbor.model.executions import Attempt, AttemptKind, known_executions
from taskharbor.model.job import JobInfo, JobRecord, State

if TYPE_CHECKING:
    from taskharbor.django.registry import DeclaredFunction

POSITIONAL = "django.positional"
BACKEND = "django.backend"

STATUS = {
    State.BLOCKED: TaskResultStatus.READY,
    State.SCHEDULED: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.INFLIGHT: TaskResultStatus.RUNNING,
    State.DONE: TaskResultStatus.SUCCESSFUL,
    State.DLQ: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
_OURS = "taskharbor."
_FAILED = (AttemptKind.FAILED, AttemptKind.TIMEOUT, AttemptKind.LOST)
_HEAD = "Traceback (most recent call last):\n"
_LINKS = {
    "caused by ": "\nThe above exception was the direct cause of the following exception:\n\n",
    "while handling ": "\nDuring handling of the above exception, another exception occurred:\n\n",
}
_FRAME = re.compile(r'  File "')
_LOST = "taskharbor.LeaseExpired: the worker ended without an outcome, or its lease ran out\n"


def result_of(info: JobInfo, declared: DeclaredFunction, alias: str | None = None) -> Any:
    """The result that stands for a job. `alias`: of the backend that was asked; else the one that enqueued it."""
    job = info.job
    backend = alias or job.metadata.get(BACKEND) or declared.task.backend
    attempts = known_executions(info)
    args, kwargs = arguments_of(job, declared)
    result = TaskResult(
        task=task_of(job, declared, backend),
        id=job.id,
        status=STATUS[info.state],
        enqueued_at=job.created_at,
        started_at=next((each.began_at for each in attempts if each.began_at is not None), None),
        last_attempted_at=next((each.began_at for each in reversed(attempts) if each.began_at is not None), None),
        finished_at=(job.finished_at or job.failed_at) if info.state.terminal else None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=errors_of(info, attempts),
        worker_ids=[each.worker for each in attempts],
    )
    if info.state is State.DONE and job.result is not None:
        object.__setattr__(result, "_return_value", json.loads(job.result))
    return result


def task_of(job: JobRecord, declared: DeclaredFunction, backend: str) -> Any:
    """The task as the job was enqueued with: its queue, priority and moment."""
    task = declared.task
    changes: dict[str, Any] = {}
    if task.priority != job.priority and -100 <= job.priority <= 100:
        changes["priority"] = job.priority
    if task.queue_name != job.queue:
        changes["queue_name"] = job.queue
    if job.run_at is not None and not job.attempts:
        changes["run_after"] = job.run_at
    if task.backend != backend:
        changes["backend"] = backend
    if not changes:
        return task
    try:
        return Task.using(task, **changes)
    except InvalidTask:  # an amended job may be in a queue that the settings do not name
        return task


def arguments_of(job: JobRecord, declared: DeclaredFunction) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as the caller gave them: by position, and by name."""
    given = json.loads(job.payload) if job.payload else {}
    if not isinstance(given, Mapping):
        return [given], {}
    names, var_positional, var_keyword = declared.layout
    rest = dict(given)
    count = int(job.metadata.get(POSITIONAL, "0"))
    args = [rest.pop(name) for name in names[:count] if name in rest]
    if var_positional is not None:
        args += rest.pop(var_positional, [])
    if var_keyword is not None:
        rest |= rest.pop(var_keyword, {})
    return args, rest


def errors_of(info: JobInfo, attempts: list[Attempt]) -> list[Any]:
    """One for each execution that failed, oldest first; for a job that was cancelled or died otherwise, one that says
    so."""
    errors = [_error(each) for each in attempts if each.kind in _FAILED]
    job = info.job
    if info.state is State.CANCELLED:
        errors.append(TaskError(exception_class_path="taskharbor.JobCancelled", traceback=f"{job.reason}\n"))
    elif info.state is State.DLQ and (not attempts or attempts[-1].kind not in _FAILED):
        errors.append(TaskError(exception_class_path="taskharbor.JobDead", traceback=f"{job.reason}\n"))
    return errors


def _error(attempt: Attempt) -> Any:
    if attempt.kind is AttemptKind.LOST:
        return TaskError(exception_class_path="taskharbor.LeaseExpired", traceback=_LOST)
    return TaskError(exception_class_path=class_path(attempt.error_class), traceback=traceback_of(attempt.error))


def class_path(name: str) -> str:
    """The class of an error as Django writes it: with its module, also for those of Python. It must be importable, and
    not all of ours are: some only stand for what happened."""
    if not name or (name.startswith(_OURS) and name.removeprefix(_OURS) not in taskharbor.__all__):
        return "taskharbor.JobDead"
    return full_error_name(name)


def traceback_of(text: str) -> str:
    """The text of a traceback for the stored text of an error: in Python's own order, the exception last.

    A store keeps the exception first and its causes after it, so that a long text is cut at the end that matters least.

    >>> stored = 'ValueError: no\\n\\n  File "<shop>", line 3, in send\\n    raise ValueError("no")'
    >>> print(traceback_of(stored), end="")
    Traceback (most recent call last):
      File "<shop>", line 3, in send
        raise ValueError("no")
    ValueError: no
    """
    if not text:
        return ""
    exceptions: list[tuple[str, list[str]]] = []  # how each exception is linked to the one before it, and its parts
    for part in text.split("\n\n"):
        link = next((each for each in (*_LINKS, "in the group: ") if part.startswith(each)), None)
        if not exceptions or link is not None:
            exceptions.append((link or "", [part.removeprefix(link or "")]))
        else:
            exceptions[-1][1].append(part)
    written = ""
    for link, parts in reversed(exceptions):
        summary, *rest = parts
        frames = [each for each in rest if _FRAME.match(each)]
        notes = [each for each in rest if not _FRAME.match(each)]
        head = _HEAD + "\n".join(frames) + "\n" if frames else ""
        written += head + "\n".join([summary, *notes]) + "\n" + _LINKS.get(link, "")
    return written
