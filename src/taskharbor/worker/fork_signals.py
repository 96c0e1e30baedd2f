"""Restores the program's own signal handlers in processes that a job's handler forks.

A forked child inherits the worker's signal handlers, and the descriptor to which Python writes the number of each
signal: the parent's loop would read the child's TERM as its own. So a child gets back the handlers that the program had
before the worker replaced them. From the fork until then the signals are blocked, so that
`process.start(); process.terminate()` ends the child however quickly the calls follow each other.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_before: dict[signal.Signals, Any] = {}  # signal → the handler that a worker has replaced; empty: no worker is running
_mask = threading.local()  # of a thread that forks


@contextmanager
def own_signals(before: Mapping[signal.Signals, Any]) -> Iterator[None]:
    """A context in which forked children get the handlers `before` instead of the worker's."""
    _before.update(before)
    try:
        yield
    finally:
        _before.clear()


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
