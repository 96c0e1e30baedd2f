"""Blocking calls for drivers that have none of their own: one background thread with an event loop awaits them.

    idle ──call──► running ──stop──► idle        (a fork in any state: idle in the child)

The thread starts with the first call, is a daemon, and ends with `stop` or with the interpreter. A forked child never
touches its parent's loop, thread or lock: it starts a portal of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import math
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from taskharbor.drivers.green import threads_are_greenlets
from taskharbor.model.errors import BackendUnavailable, BlockingCall
from taskharbor.store.access import note_exit, refuse_on_loop, stay_at_exit

T = TypeVar("T")

LONGEST_WAIT_S = 0.5  # until a caller checks again whether it was interrupted

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

    def call(self, make: Callable[[], Coroutine[Any, Any, T]], method: str, limit: float | None = None) -> T:
        """Run a coroutine to its end and return its result. An interrupt (Ctrl-C) cancels it.

        After `limit` seconds it is cancelled and left to itself: BackendUnavailable. On a running event loop the call
        is refused; `method` names it in that error, together with its awaitable twin.
        """
        refuse_on_loop(method)
        call = _Call(make)
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(call.run(), self._running())
            return _result(future, method, limit)
        except BaseException:  # its own error, or the caller was interrupted, perhaps before `future` was there
            call.cancel(self._loop)
            stay_at_exit()
            raise

    def start(self, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Begin a coroutine and do not wait for it. Cancelling its future cancels it, and so does `stop`."""
        with self._lock:
            return asyncio.run_coroutine_threadsafe(make(), self._running())

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
            if threads_are_greenlets():
                raise BlockingCall(
                    "this driver's blocking calls need a thread with an event loop, and gevent has replaced threads by "
                    "greenlets; use a store whose driver blocks by itself (PostgreSQL, SQLite, Redis without Cluster), "
                    "or patch with monkey.patch_all(thread=False)"
                )
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name="taskharbor-portal", daemon=True)
            thread.start()
            self._loop, self._thread = loop, thread  # only now: an interrupt must not leave a loop that no thread runs
        return self._loop

    def _forget(self) -> None:
        self._lock = threading.Lock()  # a thread that holds the parent's does not exist here
        self._loop = self._thread = None


class _Call(Generic[T]):
    """One call on the portal's loop. Its caller can cancel it at any moment, also while it is handed over."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    async def run(self) -> T:
        self._task = asyncio.current_task()
        if self._is_cancelled:
            raise asyncio.CancelledError
        return await self._make()

    def cancel(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Cancel it, whether it runs or is about to; without effect when it has ended."""
        self._is_cancelled = True
        if loop is not None and not (self._task is not None and self._task.done()):
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _result(future: concurrent.futures.Future[T], method: str, limit: float | None) -> T:
    """Wait for the result. A signal just before a wait does not end that wait: so waits are short."""
    left = math.inf if limit is None else limit
    while True:
        try:
            return future.result(min(LONGEST_WAIT_S, left))
        except concurrent.futures.CancelledError:
            raise BackendUnavailable(
                f"{method}: the client was closed meanwhile; whether the call was carried out is not known"
            ) from None
        except TimeoutError:
            if future.done():  # the TimeoutError is its own
                break
            left -= LONGEST_WAIT_S
            if left <= 0:
                raise BackendUnavailable(
                    f"{method}: the store did not answer within {limit:g} s, and its driver does not end the call; "
                    "whether it was carried out is not known"
                ) from None
    return future.result()


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
    note_exit()
    for portal in list(_portals):
        portal.stop(timeout=1.0)  # a driver that hangs must not keep the interpreter from ending


def _forget_all() -> None:
    for portal in list(_portals):
        portal._forget()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget_all)
