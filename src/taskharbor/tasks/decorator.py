"""The decorator `@harbor.task`, with and without options, as type checkers see it and as it works."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from taskharbor.model.codec import Codec
from taskharbor.model.job import DEFAULT_QUEUE, JobInfo, JobRecord
from taskharbor.policy.retry import RetryPolicy
from taskharbor.tasks.annotations import without_partials
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.declared_queues import Queues
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.on_dead import DeathWatch, check_death_handler
from taskharbor.tasks.options import CallOptions, TaskOptions, declared, flag, lists_options
from taskharbor.tasks.prepare import prepare
from taskharbor.tasks.task import Task, TaskClient, default_name

P = ParamSpec("P")
R = TypeVar("R")

# How a task may be called as a function: with a context or without, awaited or not. At run time all four are `Task`,
# whose own `__call__` cannot say more than "whatever the function takes".
if TYPE_CHECKING:

    class FunctionTask(Task[P, R]):
        """A plain function."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class CoroutineTask(Task[P, R]):
        """A coroutine function."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    class ContextFunctionTask(Task[P, R]):
        """A plain function whose first parameter is the context."""

        def __call__(self, ctx: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class ContextCoroutineTask(Task[P, R]):
        """A coroutine function whose first parameter is the context."""

        def __call__(self, ctx: JobContext, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

else:
    FunctionTask = CoroutineTask = ContextFunctionTask = ContextCoroutineTask = Task


class Decorator(Protocol):
    """What `@harbor.task(…)` returns: it makes a task of a function."""

    # An awaitable is a result too, so the overloads overlap; the narrower one comes first.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine function also returns T
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> ContextCoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunctionTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a coroutine function also returns T
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class TaskRegistry:
    """The part of a harbor that declares tasks and keeps their handlers."""

    def __init__(self, client: TaskClient, codec: Codec, queues: Queues | None = None) -> None:
        self.handlers = HandlerRegistry()
        self.tasks: dict[str, Task[..., Any]] = {}
        self._task_client = client
        self._task_codec = codec
        self._queues = queues or Queues(None, frozenset)

    @overload
    def task(  # type: ignore[overload-overlap]  # a coroutine function also returns T
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> ContextCoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunctionTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]  # a coroutine function also returns T
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> Decorator: ...
    @lists_options
    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Declare a task: `@harbor.task`, or `@harbor.task(queue="mail", …)` with options.

        A plain function runs in a thread of the worker, a coroutine function on its event loop. A parameter annotated
        with `JobContext` receives the job that runs. Every option can be changed for a call, with `.options(…)`, except
        for `raw=True`: the function has one parameter beside the context, which receives the payload's bytes as they
        are stored, whatever wrote them, and `enqueue` takes bytes.

        >>> from taskharbor import Exponential, Harbor
        >>> harbor = Harbor("memory://")
        >>> @harbor.task(name="fetch", queue="net", max_attempts=3, retry=Exponential(base=10), timeout=60)
        ... async def fetch(url: str) -> int: ...
        >>> fetch
        Task('fetch')
        """
        if not function:
            return lambda function: self._declare(function, options)
        given: Any = function[0]
        if isinstance(given, str):
            raise TypeError(
                f"expected a function to declare as a task, got the text {given!r}; options are named: "
                f"@harbor.task(name={given!r}) or @harbor.task(queue={given!r})"
            )
        if len(function) > 1 or options:
            raise TypeError("expected @harbor.task, or @harbor.task(queue=…) with keyword options only")
        return self._declare(given, options)

    def on_dead(self, pattern: str = "*", **options: Unpack[CallOptions]) -> Decorator:
        """Declare a task that runs when a job dies: `@harbor.on_dead("mail.*")`.

        `pattern` is compared with the type of the job that died, as a shell compares file names; without one the task
        runs for every job. The options are those of `task`. Its one parameter, annotated with `JobInfo`, receives the
        dead job: its record with reason and error, and with its payload if that has at most 32 KiB. The job of the
        task is stored together with the death, by the worker on which it happens. If such a task dies itself, no
        further one starts.
        """
        if not isinstance(pattern, str):
            raise TypeError(
                f"on_dead: expected a pattern for types such as 'mail.*', got {type(pattern).__name__}; write "
                '@harbor.on_dead("*") for all'
            )

        def declare(function: Callable[..., Any]) -> Any:
            check_death_handler(function)
            task = self._declare(function, dict(options))
            self.handlers.deaths.add(DeathWatch(pattern, task.name, partial(self._record_of_death, task)))
            return task

        return cast(Decorator, declare)

    def _record_of_death(self, task: Task[..., Any], info: JobInfo, now: datetime) -> JobRecord:
        return prepare(task.s(info)._call(), now, self._default_queue())

    def _default_queue(self) -> str:
        return DEFAULT_QUEUE

    def _declare(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        if isinstance(function, Task):
            raise TypeError(f"expected a function to declare as a task, got {function!r}; declare its function instead")
        if isinstance(function, classmethod):
            raise _no_method(function.__qualname__, "cls")
        if not callable(function):
            raise TypeError(f"expected a function to declare as a task, got {type(function).__name__}")
        if isinstance(kind := without_partials(function), type):
            raise TypeError(
                f"expected a function to declare as a task, got the class {kind.__name__}; declare a function that "
                "makes one"
            )
        _refuse_methods(function)
        name = options.get("name") or default_name(function)
        checked = declared(options, name)
        self._queues.check(checked.queue, name)
        retry: RetryPolicy | None = options.get("retry")
        handler = Handler(
            name,
            function,
            codec=self._task_codec,
            retry=retry,
            timeout=checked.timeout,
            process=flag(options.get("process", False), f"{name}: process"),
            unrecoverable=options.get("unrecoverable", ()),
            raw=flag(options.get("raw", False), f"{name}: raw"),
        )
        self.handlers.add(handler)
        task: Task[..., Any] = Task(handler, self._task_client, checked, self._queues)
        self.tasks[name] = task
        self._queues.has_tasks = True
        return task


def _refuse_methods(function: Callable[..., Any]) -> None:
    """TypeError for a method that takes `self` or `cls`: a worker has no object to call it on."""
    if not inspect.isfunction(function):
        return
    parent = function.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if not parent or parent.endswith("<locals>") or first is None:
        return
    if first.name in ("self", "cls") and first.annotation is first.empty:
        raise _no_method(function.__qualname__, first.name)


def _no_method(name: str, needs: str) -> TypeError:
    return TypeError(
        f"{name}: expected a function, got a method, which needs its {needs}; declare a function that takes what it "
        "needs as arguments, or put @staticmethod above @harbor.task"
    )
