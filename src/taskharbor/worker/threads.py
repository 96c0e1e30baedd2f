"""Threads for plain functions: daemons, so that a function that never returns cannot keep the process alive.

(`concurrent.futures` joins its threads at exit, and handing a call over costs twice as much: 42 µs against 23.) There
are never more calls at once than the worker has slots, so there is no queue to bound.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

from taskharbor.model.current_job import note_handler_thread

_Call: TypeAlias = tuple[contextvars.Context, Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Scarce(Exception):
    """The system gives no thread or process now. The function was not called."""


class Threads:
    """Runs functions in threads, and returns futures of the calling loop. Scarce if the system gives no thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._closed = False

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call the function in a thread, with a copy of the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(_retrieve)
        call = contextvars.copy_context(), function, future, loop
        if self._closed:
            self._start(self._do, call)
        elif self._busy >= self._threads:
            self._start(self._serve)
            self._threads += 1
        self._busy += 1
        if not self._closed:
            self._calls.put(call)
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call. A later call gets a thread of its own."""
        self._closed = True
        for _ in range(self._threads):
            self._calls.put(None)

    def _start(self, target: Callable[..., object], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name=f"{self._name}-{self._threads + 1}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise Scarce(f"no thread could be started: {error}") from None

    def _serve(self) -> None:
        note_handler_thread()
        while (call := self._calls.get()) is not None:
            if not self._do(call):
                return
            del call  # an idle thread keeps nothing of a job alive

    def _do(self, call: _Call) -> bool:
        """Make a call and pass its result to the loop. False: the loop is closed."""
        context, function, future, loop = call
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(self._finish, future, value, error)
        except RuntimeError:
            return False
        return True

    def _finish(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(_Raised(error))


class _Raised(Exception):
    """Carries what a function raised: a future refuses StopIteration, and a KeyboardInterrupt would end the loop."""


def unwrap(error: BaseException) -> BaseException:
    """What a function in a thread really raised."""
    return error.args[0] if type(error) is _Raised else error


def _retrieve(future: asyncio.Future[Any]) -> None:
    # The result of a job that was decided meanwhile is never awaited: retrieve it, so that asyncio does not warn.
    if not future.cancelled():
        future.exception()
