"""The lifespan of a worker process, as a program declares it: `Harbor(dsn, lifespan=resources)`.

@asynccontextmanager
async def resources() -> AsyncIterator[App]:
    async with create_pool() as pool:
        yield App(pool)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from taskharbor.model.naming import callable_name, class_name

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""A function that returns an asynchronous context manager: entered before the first job, left after the last."""


def check_lifespan(lifespan: Lifespan | None) -> Lifespan | None:
    """The lifespan itself, or TypeError if it can never be entered."""
    if lifespan is None:
        return None
    expected = "lifespan: expected a function without parameters that is decorated with @asynccontextmanager"
    given: Any = lifespan
    if not callable(given):
        hint = "; name the function without calling it" if hasattr(given, "__aenter__") else ""
        raise TypeError(f"{expected}, got {class_name(given)}{hint}")
    name = callable_name(given)
    if inspect.isasyncgenfunction(given):
        raise TypeError(f"{expected}, got {name} without the decorator")
    inner = inspect.unwrap(given)
    if inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(inner):
        raise TypeError(f"{expected}, got {name}, which is not an async generator")
    try:
        inspect.signature(given).bind()
    except TypeError:
        raise TypeError(f"{expected}, got {name}{inspect.signature(given)}") from None
    except ValueError:
        return lifespan  # its parameters cannot be read
    return lifespan
