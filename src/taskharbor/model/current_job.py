"""Which job the running code works for: what log lines are bound to.

A worker notes it in a context variable before it calls a handler, so that coroutines, the tasks they start and
functions in threads all see their own. It is a cost on the hot path, so it is noted only once somebody has said that it
will be looked at (`want`).

Whether the running code is a handler at all (`is_in_handler`) costs nothing: it is known by the thread or by the task.
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
    """From now on workers of this process note which job they run. There is no way back: who asked may still look."""
    global _wanted
    _wanted = True


def is_wanted() -> bool:
    """Whether anybody has asked."""
    return _wanted


_here = threading.local()
_codes: set[CodeType] = set()


def note_handler_thread() -> None:
    """From now on this thread runs handlers, and nothing else that waits for jobs."""
    _here.runs_handlers = True


def note_handler_tasks(coroutine_function: Callable[..., Any]) -> None:
    """Tasks that are made of this coroutine function await handlers."""
    _codes.add(coroutine_function.__code__)


def is_in_handler() -> bool:
    """Whether the running code is a handler, and so keeps a worker's slot while it waits.

    A thread or a task that a handler has started is not one: what it waits for keeps no slot.
    """
    if getattr(_here, "runs_handlers", False):
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop in this thread
        return False
    return task is not None and getattr(task.get_coro(), "cr_code", None) in _codes
