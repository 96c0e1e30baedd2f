"""Middleware: code around every execution of a handler; the first in the list is the outermost.

There are two kinds. `Middleware` is a coroutine and runs on the worker's loop, also around a function that runs in a
thread. `CallMiddleware` is a context manager around the call itself, in the thread that the handler runs in (for a
coroutine: on the loop; with `process=True`: in the child process). Only there it can reach what belongs to a thread,
such as the database connections of Django.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, TypeAlias

from taskharbor.tasks.context import JobContext

Call: TypeAlias = Callable[[JobContext], Awaitable[Any]]
"""The rest of an execution, as middleware receives it: `result = await call_next(context)`."""
Middleware: TypeAlias = Callable[[JobContext, Call], Awaitable[Any]]
"""A coroutine function `(context, call_next)` around every execution, on the worker's event loop. What it returns is
the result of the job, and what it raises counts as the handler's own error."""
CallMiddleware: TypeAlias = Callable[[JobContext], AbstractContextManager[Any]]
"""A function of the context that returns a context manager, entered around the call in the thread that the handler runs
in. It cannot swallow an error."""


def wrap(middleware: Sequence[Middleware], innermost: Call) -> Call:
    """Return one call that goes through all layers."""
    call = innermost
    for layer in reversed(middleware):
        call = _layer(layer, call)
    return call


def _layer(layer: Middleware, call_next: Call) -> Call:
    async def call(context: JobContext) -> Any:
        return await layer(context, call_next)

    return call


class _Layers(ExitStack):
    """Call middleware that was entered. It cannot swallow an error: a failed job would be recorded as one that returned
    None."""

    def __exit__(self, *raised: Any) -> Literal[False]:
        super().__exit__(*raised)
        return False


def call_within(layers: Sequence[CallMiddleware], context: JobContext, call: Callable[[], Any]) -> Any:
    """Call a function with all layers around it. What a layer raises counts as the function's own error."""
    with _Layers() as entered:
        for layer in layers:
            entered.enter_context(layer(context))
        return call()


async def await_within(
    layers: Sequence[CallMiddleware], context: JobContext, call: Callable[[], Awaitable[Any]]
) -> Any:
    """The same for a coroutine function, on its loop."""
    with _Layers() as entered:
        for layer in layers:
            entered.enter_context(layer(context))
        return await call()
