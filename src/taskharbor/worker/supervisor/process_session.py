"""The session of a worker process: the process itself and whatever it has started, in any of its process groups.

A worker leads a session of its own, so that what a crashed one leaves behind can be ended before its jobs are given to
somebody else. Only a program that makes a session of its own (a daemon) leaves it. Without /proc the worker's own
process group is all that can be found.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

ROUNDS = 10  # looks until nobody is left: what is killed may have started another one meanwhile


def kill(leader: int) -> None:
    """End every process of a session, also when its leader is gone already; the caller last, if it is one of them."""
    own = os.getsid(0)
    if leader <= 1 or (leader == own and own != os.getpid()):
        # 0 is the session of everything that has none, also of what the system runs; and ours is led by somebody else
        raise ValueError(f"expected the process id of a worker that leads a session of its own, got {leader}")
    killed = {os.getpid()}
    for _ in range(ROUNDS):
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
        return  # PermissionError: all that is left of a group are ended processes, on some systems


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
