"""The functions that `@task` has declared in imported modules, and what runs them.

A job names its type, `module.qualname`. It finds its function here or not at all: nothing is imported because a job
names it. Every harbor of the project knows all functions, because `.using(backend=…)` may send a task to any of them.

Around a call a worker puts Django's context and signals, and it stores plain JSON. `task_started` is sent here, in the
thread of the handler; `task_finished` when the end of the job is stored: see signals.py.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taskharbor.django.api import TaskContext, normalize_json, task_started
from taskharbor.django.task import options_of
from taskharbor.model.job import JobInfo, State
from taskharbor.tasks.annotations import Unresolved, hints_of, is_context
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.injected import marker_of
from taskharbor.tasks.task import Task
from taskharbor.tasks.workflow import is_workflow

if TYPE_CHECKING:
    from taskharbor.django.harbors import DjangoHarbor
    from taskharbor.django.settings import BackendOptions

KEYWORD = "taskharbor_context"  # the parameter that receives the JobContext

_known: dict[str, DeclaredFunction] = {}
_changing = threading.RLock()


class DeclaredFunction:
    """One function, and what a worker calls for it. `task`: the task of Django's that it was declared with."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.type: str = type_of(task.func)
        self.call = _callable(task, self)
        self.layout = _layout(self.call)
        own = inspect.signature(self.call).parameters
        self.parameters = frozenset(each for each in own if each not in self.call.__annotations__)

    def options(self, backend: BackendOptions) -> dict[str, Any]:
        """The options of ours that it is declared with; those of a call may differ."""
        own = {**backend.defaults, **options_of(self.task)}
        return {name: value for name, value in own.items() if name != "idempotency_key"}

    def on(self, harbor: DjangoHarbor) -> Task[..., Any]:
        """The task of TaskHarbor's that stores its jobs; declared on first use."""
        with _changing:
            found = harbor.tasks.get(self.type)
            if found is None or found.function is not self.call:
                harbor.forget_task(self.type)
                given = self.options(harbor.backend)
                if self.task.backend == harbor.backend.alias:
                    given["queue"] = self.task.queue_name
                found = harbor.task(name=self.type, **given)(self.call)
            return found


def type_of(function: Callable[..., Any]) -> str:
    """The type of a function's jobs."""
    return f"{function.__module__}.{function.__qualname__}"


def declared(task: Any) -> DeclaredFunction:
    """What is known of a task's function; it is declared now if it was not yet.

    A module that is loaded again (at a prompt, by a test) replaces its functions.
    """
    with _changing:
        found = _known.get(type_of(task.func))
        if found is None or found.task.func is not task.func or found.task.takes_context != task.takes_context:
            found = _known[type_of(task.func)] = DeclaredFunction(task)
        return found


def find(type: str) -> DeclaredFunction | None:
    """What is known of the function of a job's type."""
    return _known.get(type)


def declare_known(harbor: DjangoHarbor) -> None:
    """Declare all functions on a harbor that is new, or has other defaults now."""
    with _changing:
        for each in list(_known.values()):
            harbor.forget_task(each.type)
            each.on(harbor)


def _layout(call: Callable[..., Any]) -> tuple[tuple[str, ...], str | None, str | None]:
    """The parameters that can be given by position, and those that collect the rest."""
    own = [each for each in inspect.signature(call).parameters.values() if each.name != KEYWORD]
    by_kind = {each.kind: each.name for each in own}
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(each.name for each in own if each.kind in positional and each.name not in call.__annotations__)
    return names, by_kind.get(inspect.Parameter.VAR_POSITIONAL), by_kind.get(inspect.Parameter.VAR_KEYWORD)


def _callable(task: Any, owner: DeclaredFunction) -> Callable[..., Any]:
    """What a worker calls: the function with Django's context, signals and rules for results around it.

    Its parameters are those of the function, without types: Django's tasks take and return plain JSON, and leave the
    rest to the function. What the worker gives (a JobContext, Depends, Given) keeps its type.
    """
    function = task.func
    call: Any
    if inspect.iscoroutinefunction(function):

        async def call(*args: Any, **kwargs: Any) -> Any:
            result, first = _begun(owner, kwargs.pop(KEYWORD))
            await task_started.asend_robust(sender=type(result.task.get_backend()), task_result=result)
            return _returned(await function(*first, *args, **kwargs))

    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            result, first = _begun(owner, kwargs.pop(KEYWORD))
            task_started.send_robust(sender=type(result.task.get_backend()), task_result=result)
            return _returned(function(*first, *args, **kwargs))

    functools.update_wrapper(call, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())
    del call.__wrapped__  # its signature is not the function's
    parameters, annotations = _parameters(task)
    call.__signature__ = inspect.Signature(parameters)
    call.__annotations__ = annotations
    made: Callable[..., Any] = call
    return made


def _begun(declared: DeclaredFunction, ctx: JobContext) -> tuple[Any, tuple[Any, ...]]:
    """The result of a job that begins, and what comes before its arguments."""
    from taskharbor.django.results import result_of

    result = result_of(JobInfo(ctx.job, State.INFLIGHT, ctx.worker), declared)
    return result, (TaskContext(task_result=result),) if declared.task.takes_context else ()


def _returned(value: Any) -> Any:
    """What is stored of a value. A workflow takes the place of the job, as with every other task."""
    return value if is_workflow(value) else normalize_json(value)


def _parameters(task: Any) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    signature = inspect.signature(task.func)
    found, hints = list(signature.parameters.values()), hints_of(task.func, signature)
    if task.takes_context:
        found = found[1:]
    parameters: list[inspect.Parameter] = []
    annotations: dict[str, Any] = {KEYWORD: JobContext}
    for each in found:
        hint = hints.get(each.name, inspect.Parameter.empty)
        kept = not isinstance(hint, Unresolved) and (is_context(hint) or marker_of(each.default, hint) is not None)
        if kept:
            annotations[each.name] = hint
        parameters.append(each.replace(annotation=hint if kept else inspect.Parameter.empty))
    context = inspect.Parameter(KEYWORD, inspect.Parameter.KEYWORD_ONLY, annotation=JobContext)
    last = parameters[-1] if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else None
    before = parameters[:-1] if last is not None else parameters
    return [*before, context, *([last] if last is not None else [])], annotations
