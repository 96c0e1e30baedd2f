"""The synchronous face: one background thread with an event loop, on which blocking calls are awaited.

    idle ──call──► running ──stop──► idle        (a fork in any state: idle in the child)

The thread starts with the first call, is a daemon, and ends with `stop` or with the interpreter. A forked child never
touches its parent's loop, thread or lock: it starts a portal of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from taskharbor.model.errors import BlockingCall

T = TypeVar("T")

_portals: weakref.WeakSet[Portal] = weakref.WeakSet()


class Portal:
    """Runs coroutines for callers that block. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _portals.add(self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop while it runs; None when idle."""
        return self._loop

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], who: str) -> T:
        """Run a coroutine to its end and answer with its result. An interrupt (Ctrl-C) cancels it.

        On a running event loop it is refused: `who` is the blocking call, whose twin has an `a` before its name.
        """
        refuse_on_loop(who)
        with self._lock:
            loop = self._running()
            future = asyncio.run_coroutine_threadsafe(make(), loop)
        try:
            return future.result()
        finally:
            future.cancel()  # without effect when it is done; else the caller was interrupted, and nobody waits

    def stop(self, timeout: float = 5.0) -> None:
        """End the thread and cancel what still runs on it; without effect when idle."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        try:
            loop.call_soon_threadsafe(loop.stop)
        except RuntimeError:  # closed already
            return
        if thread is not threading.current_thread():
            thread.join(timeout)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(loop,), name="taskharbor-portal", daemon=True)
            self._thread.start()
        return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()  # the parent's may be held by a thread that does not exist here
        self._loop = self._thread = None


def refuse_on_loop(who: str) -> None:
    """BlockingCall if this thread runs an event loop: blocking it would freeze everything on it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    owner, _, method = who.rpartition(".")
    raise BlockingCall(f"{who}() would block the running event loop; use: await {owner}.a{method}(...)")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _stop_all() -> None:
    for portal in list(_portals):
        portal.stop(timeout=1.0)  # a driver that hangs must not keep the interpreter from ending


def _forget_all() -> None:
    for portal in list(_portals):
        portal._forget()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget_all)
