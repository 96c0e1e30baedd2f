"""The signals of the supervisor: handled from before its loop runs until the program has ended.

    TERM, INT, HUP      drain; again: hurry; again: kill            (HUP is left alone under nohup)
    QUIT                hurry at once, as the second of them does; again: kill
    CHLD                a worker process has ended, stopped, or goes on
    USR1, USR2 and others that would end a program by default: logged, nothing else

Python's own handlers are used instead of the loop's: those are removed when the loop closes, and a TERM that arrives
then would end the program as if it had failed. The programs that the supervisor starts do not inherit handlers; they
would inherit ignored signals.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_OTHERS = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT")


class SupervisorSignals:
    """Passes signals on to a loop, once there is one."""

    def __init__(
        self,
        on_stop: Callable[[signal.Signals], None],
        on_child: Callable[[], None],
        on_other: Callable[[signal.Signals], None],
    ) -> None:
        self._handlers: dict[int, Callable[[], None]] = {signal.SIGCHLD: on_child}
        for number in STOP:
            # nohup means that a closed terminal ends nothing
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = lambda number=number: on_stop(number)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        for name in _OTHERS:
            other = getattr(signal, name, None)  # not every system has them all
            if other is not None:
                self._handlers[other] = lambda other=other: on_other(other)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[int] = []

    def take(self) -> None:
        """From now on no signal ends this program."""
        for number in self._handlers:
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._handlers)  # the program that started us may have blocked them

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call the handlers on this loop; first for signals that have arrived already."""
        self._loop = loop
        for number in self._early:
            loop.call_soon(self._handlers[number])

    def end(self) -> None:
        """The program is about to end with its own exit code: no signal changes that any more."""
        hook = sys.unraisablehook
        sys.unraisablehook = lambda report: None if _is_late(report.exc_value) else hook(report)
        for number in self._handlers:
            if number != signal.SIGCHLD:
                signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._loop is None:
            self._early.append(number)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._handlers[number])


def _is_late(error: BaseException | None) -> bool:
    """Whether Python only reports that a signal arrived at the moment from which it was to be ignored."""
    return isinstance(error, OSError) and str(error).endswith("ignored due to race condition")
