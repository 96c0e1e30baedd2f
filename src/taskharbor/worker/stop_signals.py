"""TERM and INT for a worker that runs in the main thread of its program.

    first ──► stop: finish what runs      second ──► hurry: give it back      third ──► the process ends at once

The signal handlers are Python's own, not the event loop's: they run even while a job blocks the loop, so the third
signal always works. (Only code that holds the interpreter delays them; then KILL is left.) Once the worker has ended,
the program's own signal handlers are restored.

The bytes in the wakeup socket are not used, they only wake the loop: a process that a job forks inherits the socket,
and writes its own signals there.
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
    """A context in which the first signal calls `first`, the second `second`; in the main thread, at any moment."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._calls = (first, second)
        self._received = 0
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
        """Wake the loop at each signal: any thread may receive it, but Python handles it in the main one."""
        ours, theirs = self._wakeup = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            loop.add_reader(ours, self._drain)
        except NotImplementedError:  # Windows: a signal is noticed at the loop's next turn
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
        self._received += 1
        if self._received <= len(self._calls):
            self._calls[self._received - 1]()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup_before)
