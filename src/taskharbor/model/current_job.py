"""The job that the running code works for: log lines are bound to it.

A worker sets it in a context variable before it calls a handler, so that coroutines, the tasks they start and
functions in threads each see their own job. That costs time on the hot path, so workers do it only after `want` was
called.

Whether the running code is a handler at all (`is_in_handler`) costs nothing: the thread or the task shows it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import CodeType
from typing import Any

from taskharbor.model.job import JobRecord

CURRENT: ContextVar[JobRecord | None] = ContextVar("taskharbor.current", default=None)

_wanted = False


def want() -> None:
    """From now on workers of this process set `CURRENT`. There is no way back: the caller may read it at any time."""
    global _wanted
    _wanted = True


def is_wanted() -> bool:
    """Whether `want` was called."""
    return _wanted


_here = threading.local()
_codes: set[CodeType] = set()


def note_handler_thread() -> None:
    """Mark this thread as one that runs handlers, and nothing else that waits for jobs."""
    _here.runs_handlers = True


def note_handler_tasks(coroutine_function: Callable[..., Any]) -> None:
    """Mark the tasks made of this coroutine function as ones that await handlers."""
    _codes.add(coroutine_function.__code__)


def is_in_handler() -> bool:
    """Whether the running code is a handler, and so keeps a worker's slot while it waits.

    A thread or a task that a handler started is not a handler: it keeps no slot while it waits.
    """
    if getattr(_here, "runs_handlers", False):
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop in this thread
        return False
    return task is not None and getattr(task.get_coro(), "cr_code", None) in _codes
