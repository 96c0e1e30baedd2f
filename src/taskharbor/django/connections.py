"""Django's connections around every job, in the thread that uses them.

Django keeps a connection for each thread, and looks after it when a request begins and ends. A worker has no requests:
here each job is one. A connection that is too old or broken is closed, and the next query opens another.
`CONN_MAX_AGE` and `CONN_HEALTH_CHECKS` are honoured.

In a test the handlers use the test's own connections (`lend`): nothing else sees its transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

from taskharbor.tasks.context import JobContext

_lent: dict[str, Any] = {}  # by alias
in_use = threading.RLock()
"""Held while a handler uses lent connections, and by each call of the driver on them."""


@contextmanager
def fresh_connections(ctx: JobContext) -> Iterator[None]:
    """Around every call of a handler: in the thread of a plain function, or on the loop of a coroutine."""
    if _lent:
        with borrowed():
            yield
        return
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


async def fresh_async_connections(ctx: JobContext, call_next: Callable[[JobContext], Awaitable[Any]]) -> Any:
    """Around every job, on the loop: the same in the thread in which Django runs the ORM for coroutines."""
    if _lent:
        return await call_next(ctx)
    await sync_to_async(close_old_connections)()
    try:
        return await call_next(ctx)
    finally:
        await sync_to_async(close_old_connections)()


@contextmanager
def lend(mine: Mapping[str, Any]) -> Iterator[None]:
    """Let handlers in other threads use these connections, by alias, for a block."""
    for connection in mine.values():
        connection.inc_thread_sharing()
    _lent.update(mine)
    try:
        yield
    finally:
        _lent.clear()
        for connection in mine.values():
            connection.dec_thread_sharing()


@contextmanager
def borrowed() -> Iterator[None]:
    """Use the lent connections in this thread, and close those that the handler opened beside them.

    Nobody else would: the thread of a handler outlives the test, and its connection keeps Django from dropping the
    test database.
    """
    with in_use:
        # This may be the thread of the test itself: then each is its own, and has to stay. Django closes at the end of
        # the tests what the thread has then; a connection that it lost keeps the test database from being dropped.
        before = {alias: connections[alias] for alias in _lent}
        kept = {id(each) for each in (*_opened(), *_lent.values())}
        for alias, connection in _lent.items():
            connections[alias] = connection
        try:
            yield
        finally:
            for alias, connection in before.items():
                connections[alias] = connection
            for connection in _opened():
                if id(connection) not in kept:
                    connection.close()


def _opened() -> list[Any]:
    """The connections of this thread that are open. On a loop there are none: Django opens them in a thread."""
    return [each for each in connections.all(initialized_only=True) if each.connection is not None]
