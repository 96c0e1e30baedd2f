"""Middleware: functions wrapped around every execution, the first in the list outermost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from taskharbor.tasks.context import JobContext

Call: TypeAlias = Callable[[JobContext], Awaitable[Any]]
Middleware: TypeAlias = Callable[[JobContext, Call], Awaitable[Any]]


def wrap(middleware: Sequence[Middleware], innermost: Call) -> Call:
    """One call that goes through all of them."""
    call = innermost
    for layer in reversed(middleware):
        call = _layer(layer, call)
    return call


def _layer(layer: Middleware, call_next: Call) -> Call:
    async def call(context: JobContext) -> Any:
        return await layer(context, call_next)

    return call
