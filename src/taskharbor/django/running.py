"""A job of a task of Django's, as a worker runs it: context and signals before, plain JSON after.

`task_started` is sent here, in the thread of the handler. `task_finished` is sent when the end of the job is stored:
see signals.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taskharbor.django.api import TaskContext, normalize_json, task_started
from taskharbor.model.job import JobInfo, State
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.workflow import is_workflow

if TYPE_CHECKING:
    from taskharbor.django.registry import DeclaredFunction

KEYWORD = "taskharbor_context"


def calling(declared: DeclaredFunction, ctx: JobContext, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a plain function."""
    result = _begun(declared, ctx)
    task_started.send_robust(sender=type(result.task.get_backend()), task_result=result)
    return returned(declared.task.func(*_first(declared, result), *args, **kwargs))


async def calling_coroutine(
    declared: DeclaredFunction, ctx: JobContext, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a coroutine function."""
    result = _begun(declared, ctx)
    await task_started.asend_robust(sender=type(result.task.get_backend()), task_result=result)
    return returned(await declared.task.func(*_first(declared, result), *args, **kwargs))


def returned(value: Any) -> Any:
    """What is stored of a value. A workflow takes the place of the job, as with every other task."""
    return value if is_workflow(value) else normalize_json(value)


def _begun(declared: DeclaredFunction, ctx: JobContext) -> Any:
    from taskharbor.django.results import result_of

    return result_of(JobInfo(ctx.job, State.INFLIGHT, ctx.worker), declared)


def _first(declared: DeclaredFunction, result: Any) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if declared.task.takes_context else ()
