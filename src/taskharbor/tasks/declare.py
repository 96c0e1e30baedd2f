"""The decorator `@harbor.task`, with and without options, as type checkers see it and as it works."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from taskharbor.model.codec import Codec
from taskharbor.policy.retry import RetryPolicy
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.options import CallOptions, declared, flag
from taskharbor.tasks.task import Enqueuer, Task, default_name
from taskharbor.tasks.typed import ContextCoroutineTask, ContextFunctionTask, CoroutineTask, FunctionTask

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """What `@harbor.task(…)` gives: it makes a task of a function."""

    # An awaitable is a result too, so the overloads overlap; the narrower one comes first.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> ContextCoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunctionTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class Declaring:
    """The part of a harbor that declares tasks and keeps their handlers."""

    def __init__(self, enqueuer: Enqueuer, codec: Codec) -> None:
        self.handlers = HandlerRegistry()
        self.tasks: dict[str, Task[..., Any]] = {}
        self._enqueuer = enqueuer
        self._task_codec = codec

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> ContextCoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> ContextFunctionTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[CallOptions]) -> Decorator: ...
    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Declare a task: `@harbor.task`, or `@harbor.task(queue="mail", …)` with options."""
        if not function:
            return lambda function: self._declare(function, options)
        if len(function) > 1 or options:
            raise TypeError("expected @harbor.task, or @harbor.task(queue=…) with keyword options only")
        return self._declare(function[0], options)

    def _declare(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        if isinstance(function, Task):
            raise TypeError(f"expected a function to declare as a task, got {function!r}; declare its function instead")
        if not callable(function):
            raise TypeError(f"expected a function to declare as a task, got {type(function).__name__}")
        name = options.get("name") or default_name(function)
        checked = declared(options, name)
        retry: RetryPolicy | None = options.get("retry")
        handler = Handler(
            name,
            function,
            codec=self._task_codec,
            retry=retry,
            timeout=checked.timeout,
            process=flag(options.get("process", False), f"{name}: process"),
            unrecoverable=options.get("unrecoverable", ()),
        )
        self.handlers.add(handler)
        task: Task[..., Any] = Task(handler, self._enqueuer, checked)
        self.tasks[name] = task
        return task
