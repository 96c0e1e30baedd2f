"""Django's connections around every job, in the thread that uses them.

Django keeps a connection for each thread, and looks after it when a request begins and ends. A worker has no requests:
here each job is one. A connection that is too old or broken is closed, and the next query opens another.
`CONN_MAX_AGE` and `CONN_HEALTH_CHECKS` are honoured.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from taskharbor.tasks.context import JobContext


@contextmanager
def fresh_connections(ctx: JobContext) -> Iterator[None]:
    """Around every call of a handler: in the thread of a plain function, or on the loop of a coroutine."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


async def fresh_async_connections(ctx: JobContext, call_next: Callable[[JobContext], Awaitable[Any]]) -> Any:
    """Around every job, on the loop: the same in the thread in which Django runs the ORM for coroutines."""
    await sync_to_async(close_old_connections)()
    try:
        return await call_next(ctx)
    finally:
        await sync_to_async(close_old_connections)()
