"""Programs whose threads gevent has replaced by greenlets (`gevent.monkey.patch_all()`, gunicorn's worker `gevent`).

An event loop in such a "thread" would run in the caller's own thread: every greenlet there would seem to run it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def threads_are_greenlets() -> bool:
    """Whether `threading.Thread` starts a greenlet in this process."""
    monkey: Any = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def run_in_native_thread(coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
    """Run a coroutine on an event loop in a thread of the system, while other greenlets of this one go on."""
    gevent: Any = import_module("gevent")  # it is there, and no dependency
    with gevent.Timeout(min(seconds, 86_400.0), TimeoutError("the deadline has passed")):
        result: T = gevent.get_hub().threadpool.apply(asyncio.run, (coroutine,))
        return result
