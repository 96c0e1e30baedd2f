"""The signals of a worker that runs in the main thread of its program, and of what its handlers fork.

    TERM, INT: first ──► stop: finish what runs    second ──► hurry: give it back     third ──► the process ends at once

The signal handlers are Python's own, not the event loop's: they run even while a job blocks the loop, so the third
signal always works. (Only code that holds the interpreter delays them; then KILL is left.) Once the worker has ended,
the program's own signal handlers are restored.

The bytes in the wakeup socket are not used, they only wake the loop: a process that a job forks inherits the socket,
and writes its own signals there.

A forked child inherits the worker's signal handlers, and the descriptor to which Python writes the number of each
signal: the parent's loop would read the child's TERM as its own. So a child gets back the handlers that the program had
before the worker replaced them. From the fork until then the signals are blocked, so that
`process.start(); process.terminate()` ends the child however quickly the calls follow each other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """A context in which the first two signals call `on_signal` with 1 and 2; in the main thread, at any moment."""

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._call = on_signal
        self._received = 0
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup: tuple[socket.socket, socket.socket] | None = None
        self._wakeup_before = -1

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
            self._listen(asyncio.get_running_loop())
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._wakeup is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            asyncio.get_running_loop().remove_reader(self._wakeup[0])
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
        if self._received <= 2:
            self._call(self._received)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


# What a handler forks -------------------------------------------------------------------------------------------------

_before: dict[signal.Signals, Any] = {}  # signal → the handler that a worker has replaced; empty: no worker is running
_mask = threading.local()  # of a thread that forks


@contextmanager
def own_signals() -> Iterator[None]:
    """A context in which forked children get the program's own handlers instead of the worker's; so does the program
    itself afterwards."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS} if main else {}
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _block() -> None:
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _before) if _before else None


def _unblock() -> None:
    if _mask.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _restore() -> None:
    if _mask.before is not None:
        signal.set_wakeup_fd(-1)
        for number, handler in _before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not set from Python
        _before.clear()
        _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_restore)
