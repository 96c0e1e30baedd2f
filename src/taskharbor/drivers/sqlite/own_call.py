"""Calls that would wait for their own caller: refused at once, or nobody could write to the file until they gave up.

a write below `ctx.transaction()` of the same job, in its thread, its task, or what they start
a call below a call on the same thread: from a `__del__` that the garbage collector runs, or a signal handler
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from taskharbor.model.errors import BlockingCall

ANY_FILE = "*"  # on the threads of a database, which do one call after the other


class OpenWrite(Protocol):
    """The transaction of a handler."""

    @property
    def writes_to(self) -> str | None:
        """The file whose write lock it holds; None if it does not, or no longer."""


OWN_WRITE: ContextVar[OpenWrite | None] = ContextVar("taskharbor_sqlite_own_write", default=None)
_calls = threading.local()


def is_below_own_write(path: str) -> bool:
    """Whether the running code's own transaction has the write lock of this file."""
    write = OWN_WRITE.get()
    return write is not None and write.writes_to == path


def refuse_below_own_write(path: str) -> None:
    """BlockingCall if the running code's own transaction has the write lock of this file."""
    if is_below_own_write(path):
        raise BlockingCall(
            f"{path}: inside ctx.transaction() this call would wait for the lock that its own job holds. Nothing was "
            "stored. Enqueue with options(connection=...) and the connection of the transaction, or before it begins"
        )


@contextmanager
def call_on_this_thread(path: str) -> Iterator[None]:
    """Around a call. BlockingCall if this thread is in one already."""
    outer = getattr(_calls, "path", None)
    if outer in (path, ANY_FILE):
        raise BlockingCall(
            f"{path}: this thread is inside another call to the store, which this one would wait for: it comes from a "
            "__del__ that the garbage collector ran, or from a signal handler. Nothing was stored. Call from another "
            "thread: put what is to do into a queue.SimpleQueue that it reads"
        )
    _calls.path = path
    try:
        yield
    finally:
        _calls.path = outer
