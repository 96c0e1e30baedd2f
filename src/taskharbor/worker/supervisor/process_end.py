"""The end of a worker process: its session is killed, by its supervisor or, when that is gone, by itself.

A worker leads a session of its own: the process itself and whatever it has started, in any of its process groups. So
what a crashed one leaves behind can be ended before another worker gets its jobs. Only a program that starts a session
of its own (a daemon) leaves it. Without /proc only the worker's own process group can be found.

A worker process whose supervisor is gone ends whatever its handlers do:

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
from collections.abc import Callable
from typing import Any

SETTLE_S = 5.0  # beyond the grace period, for a worker to write its last outcomes
EXIT_S = 3.0  # for a process to exit after it has stopped serving
PR_SET_PDEATHSIG = 1
MAX_ROUNDS = 10  # what is killed may have started another process meanwhile

_armed = 0


def kill(leader: int) -> None:
    """End every process of a session, also when its leader is gone already; the caller last, if it is one of them."""
    own = os.getsid(0)
    if leader <= 1 or (leader == own and own != os.getpid()):
        # 0 is the session of all processes without one, such as the kernel's. Ours is led by another program.
        raise ValueError(f"expected the process id of a worker that leads a session of its own, got {leader}")
    killed = {os.getpid()}
    for _ in range(MAX_ROUNDS):
        found = set(_members(leader)) - killed
        if not found:
            break
        for pid in found:
            _signal(os.kill, pid)
        killed |= found
    _signal(os.killpg, leader)


def _signal(send: Callable[[int, int], None], to: int) -> None:
    try:
        send(to, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # PermissionError: on some systems, for a group whose processes have all ended


def _members(leader: int) -> list[int]:
    found = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                facts = file.read().rpartition(b")")[2].split()  # the name before it may hold anything
        except OSError:
            continue
        if len(facts) > 3 and int(facts[3]) == leader and facts[0] not in (b"Z", b"X"):
            found.append(pid)
    return found


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
    kill(os.getpid())
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
