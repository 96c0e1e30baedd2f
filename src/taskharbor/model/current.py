"""Which job the running code works for: what log lines are bound to.

A worker notes it in a context variable before it calls a handler, so that coroutines, the tasks they start and
functions in threads all see their own. It is a cost on the hot path, so it is noted only once somebody has said that it
will be looked at (`want`).
"""

from __future__ import annotations

from contextvars import ContextVar

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
