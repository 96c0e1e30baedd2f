"""The session of a worker process: the process itself and whatever it has started, in any of its process groups.

A worker leads a session of its own, so that what a crashed one leaves behind can be ended before another worker gets
its jobs. Only a program that starts a session of its own (a daemon) leaves it. Without /proc only the worker's own
process group can be found.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

MAX_ROUNDS = 10  # what is killed may have started another process meanwhile


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
