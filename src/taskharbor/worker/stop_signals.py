"""TERM and INT for a worker that runs in the main thread of its program.

    first ──► stop: finish what runs      second ──► hurry: give it back      third ──► the process ends at once

The handlers are Python's own, not the event loop's: they are called while a handler of a job blocks the loop, so the
third signal always comes through. (Only code that holds the interpreter keeps them waiting; there KILL is left.) Once
the worker has ended, the program has the handlers back that it had before.

Nothing is read from the wakeup socket but the fact that it is time to look: a process that a job's handler forks
inherits the socket, and its signals are not the worker's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While this lasts, the first signal calls `first`, the second `second`; both in the main thread, at any moment."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._calls = (first, second)
        self._heard = 0
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
            self._listen(asyncio.get_running_loop())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            self._restore()
            if self._wakeup is not None:
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._wakeup[0])
                for end in self._wakeup:
                    end.close()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the loop turn at each signal: the system may give it to any thread, and only the main one acts on it."""
        ours, theirs = self._wakeup = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            loop.add_reader(ours, self._drain)
        except NotImplementedError:  # no such loop on Windows: a signal is noticed at the loop's next turn
            self._wakeup = None
            ours.close()
            theirs.close()
            return
        self._wakeup_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def _drain(self) -> None:
        assert self._wakeup is not None
        try:
            while self._wakeup[0].recv(4096):
                pass
        except (BlockingIOError, InterruptedError):
            return

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard <= len(self._calls):
            self._calls[self._heard - 1]()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup_before)
