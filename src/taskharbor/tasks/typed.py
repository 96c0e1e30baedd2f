"""How a task may be called as a function, for type checkers: with a context or without, awaited or not.

At run time all four are `Task`; its own `__call__` cannot say more than "whatever the function takes".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from taskharbor.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from taskharbor.tasks.context import JobContext

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
