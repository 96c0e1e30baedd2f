"""The end of a worker process whose supervisor is gone, whatever its handlers do.

    the socket closes ──► asked to stop ──► stopped, or the grace period and 5 s ──► 3 s to exit ──► killed
         └── a handler holds the interpreter, so no Python runs ──► ended by the kernel after 34 to 64 s

The second way needs no Python. The kernel signals the death of the parent, and the handler of that signal is the C
function alarm(2) itself. A handler is called with the number of its signal, and alarm takes seconds: the number of the
signal is how many seconds later SIGALRM ends the process, unless `disarm` was called meanwhile. 64 is the highest
number that programs may use. Other workers get the jobs when the leases end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from taskharbor.worker.supervisor import process_session

SETTLE_S = 5.0  # beyond the grace period, for a worker to write its last outcomes
EXIT_S = 3.0  # for a process to exit after it has stopped serving
PR_SET_PDEATHSIG = 1

_armed = 0


def arm(seconds: float) -> None:
    """Let the kernel end this process about `seconds` after its parent has died. Linux only."""
    if sys.platform == "linux":
        _arm(int(min(max(seconds, signal.SIGRTMIN), signal.SIGRTMAX)))


def _arm(number: int) -> None:
    global _armed
    libc = _libc()
    if libc is not None:
        libc.signal(number, libc.alarm)
        libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        _armed = number


def disarm() -> None:
    """Python runs, so it can end the process itself: cancel what `arm` has set up."""
    global _armed
    number, _armed = _armed, 0
    if number:
        libc = _libc()
        libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
        libc.signal(number, 1)  # ignored, if it has been sent and not arrived
        signal.alarm(0)


def end(grace: float, left: threading.Event) -> None:
    """End this process: when it takes too long to stop, or has stopped (`left`) and does not exit."""
    disarm()
    if left.wait(grace + SETTLE_S):
        time.sleep(EXIT_S)
    process_session.kill(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)  # where it leads no session


def _libc() -> Any:
    try:
        import ctypes
    except ImportError:  # a Python that was built without it
        return None
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    return libc
