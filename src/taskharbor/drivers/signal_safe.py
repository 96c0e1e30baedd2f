"""Waiting, counting and finishing, for calls that a signal handler may end anywhere by raising an exception.

Python runs signal handlers in the main thread, after any call of a C function. Ctrl-C raises KeyboardInterrupt there;
so do the SIGALRM handlers with which job queues, web servers and test runners end what takes too long. An exception
that comes between `lock.acquire()` and the `try` that follows it leaves the lock taken for good. The parts of
`threading` that are written in Python (Condition, Event, Semaphore) have such moments inside them. Only `with lock:` on
a plain lock has none: no handler runs between taking the lock and the block.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from taskharbor.model.clock import StoreClock

LONGEST_WAIT_S = 0.5  # until a thread that waits checks by itself: an exception may have come before it was woken
_monotonic = StoreClock().monotonic


class ThreadLimit:
    """At most `limit` threads are inside at a time; the others wait.

    try:
        if not places.enter(seconds):
            raise TimeoutError
        ...
    finally:
        places.inside.discard(threading.get_ident())  # first: after this one call no place can be lost
        places.wake()
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inside: set[int] = set()  # threads
        self._guard = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def enter(self, seconds: float) -> bool:
        """Take a place; False if none became free within `seconds`. A thread that is inside already stays inside."""
        return self._try_enter(overtakes=False) or self._wait(seconds)

    def wake(self) -> None:
        """Hand places that are free to the threads that have waited longest: else those that come and go quickly would
        take every place, and the others none."""
        if self._waiting:
            with self._guard:
                while self._waiting and len(self.inside) < self.limit:
                    thread, woken = self._waiting.popleft()
                    self.inside.add(thread)
                    woken.release()

    def _try_enter(self, *, overtakes: bool) -> bool:
        me = threading.get_ident()
        with self._guard:
            if me in self.inside:
                return True
            if len(self.inside) >= self.limit or (self._waiting and not overtakes):
                return False
            self.inside.add(me)
            return True

    def _wait(self, seconds: float) -> bool:
        end = _monotonic() + seconds
        me = threading.get_ident()
        while (left := end - _monotonic()) > 0:
            self.sleep(left, lambda: len(self.inside) < self.limit or me in self.inside)
            if self._try_enter(overtakes=True):
                return True
        return False

    def sleep(self, seconds: float, has_come: Callable[[], bool]) -> None:
        """Sleep until other threads have left. `has_come`: whether what is waited for has come before it could."""
        woken = threading.Lock()
        woken.acquire()
        entry = (threading.get_ident(), woken)
        try:
            self._waiting.append(entry)
            if not has_come():
                woken.acquire(timeout=min(seconds, LONGEST_WAIT_S))
        finally:
            try:
                self._waiting.remove(entry)
            except ValueError:  # it was woken
                pass


class ClosedFlag:
    """Whether something was closed, and sleeping until then. Like an Event, but no thread takes another's lock."""

    def __init__(self) -> None:
        self._is_set = False
        self._sleeping: set[threading.Lock] = set()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Closed from now on: wake all that sleep."""
        self._is_set = True
        for sleeper in list(self._sleeping):
            try:
                sleeper.release()
            except RuntimeError:  # another thread has closed it as well
                pass

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or until it is closed."""
        own = threading.Lock()
        own.acquire()
        try:
            self._sleeping.add(own)
            if not self._is_set:
                own.acquire(timeout=min(max(seconds, 0), threading.TIMEOUT_MAX))
        finally:
            self._sleeping.discard(own)


# The C functions below `signal`, where there are any: its own turn every handler into an enum first, which costs 14 µs
# a call on Python 3.11, a third of an enqueue.
_signals: Any = sys.modules.get("_signal", signal)
_NAMES = ("INT", "TERM", "ALRM", "HUP", "QUIT", "ABRT", "USR1", "USR2", "VTALRM", "PROF")
_DEFERRED = tuple(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}"))
_entered: list[DeferredSignals] = []  # by the main thread


class DeferredSignals:
    """A block in which no signal handler runs: it runs when the block ends, or when `has_raised` is called.

    Python runs signal handlers in the main thread only, so in others there is nothing to do.
    """

    __slots__ = ("_error", "_handlers", "_pending", "_replaced")

    def __enter__(self) -> DeferredSignals:
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._replaced: list[int] = []
        self._pending: list[tuple[int, FrameType | None]] = []
        self._error: BaseException | None = None
        if threading.get_ident() == threading.main_thread().ident:
            try:
                _entered.append(self)
                for number in _DEFERRED:
                    handler = _signals.getsignal(number)
                    if callable(handler):  # neither the system's default nor ignored: it runs Python code
                        self._handlers[number] = handler
                        self._replaced.append(number)
                        _signals.signal(number, self._note)
            except BaseException:  # raised by a handler that was not replaced yet
                self.__exit__()
                raise
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append((number, frame))

    def has_raised(self) -> bool:
        """Run the handlers of the signals that came; whether one has raised an exception, which the block then raises.

        For waits, which may be given up then. A handler that raises nothing, as a server's for SIGTERM, ends no wait.
        """
        if self._pending:
            try:
                self._run_pending()
            except BaseException as error:
                self._error = error
        return self._error is not None

    def __exit__(self, *raised: object) -> None:
        try:
            self.restore()
        finally:
            if self._pending:
                self._run_pending()
            if self._error is not None:
                raise self._error

    def _run_pending(self) -> None:
        number, frame = self._pending.pop(0)
        try:
            self._handlers[number](number, frame)
        finally:
            if self._pending:
                self._run_pending()

    def restore(self) -> None:
        """Put the handlers back."""
        try:
            while self._replaced:
                number = self._replaced[-1]
                if _signals.getsignal(number) == self._note:  # else a handler that ran meanwhile has set another one
                    _signals.signal(number, self._handlers[number])
                self._replaced.pop()
            if _entered and _entered[-1] is self:
                _entered.pop()
        except BaseException:  # raised by a handler that is back
            self.restore()
            raise


def _restore_in_child() -> None:
    """A thread other than the main one has forked: the block of the main thread does not end in the child."""
    while _entered:
        _entered[-1].restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)
