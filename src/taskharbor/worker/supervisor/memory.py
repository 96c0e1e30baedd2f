"""How much memory a process uses, and how much is free: read from /proc and the cgroup, without a library.

The cgroup counts because the usual place of a supervisor is a container: there /proc/meminfo shows the memory of the
host, and a spare that trusted it could push the container over its limit.
"""

from __future__ import annotations

import os
import sys

ROOT = ""  # of the file system; tests set it


def resident(pid: int) -> int:
    """Resident bytes; 0 for a process that is gone, and where there is no /proc."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def used(pid: int) -> int:
    """Resident bytes of a worker process, together with its children of `process=True` tasks.

    Those lead process groups of their own. What a handler has started itself is not counted: replacing the worker would
    not make it smaller.
    """
    return resident(pid) + sum(resident(child) for child in _children(pid) if _group(child) == child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except (OSError, ValueError):
        pass  # it is gone, or this kernel has no such file
    return found


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def measurable() -> bool:
    """Whether memory can be measured on this system."""
    return resident(os.getpid()) > 0


def free() -> int:
    """Bytes that are still free: of the system, and of its cgroup if that has a limit."""
    free = [_available()]
    try:
        with open(f"{ROOT}/proc/self/cgroup", encoding="utf-8") as file:
            path = next(line[3:].strip() for line in file if line.startswith("0::"))
        while path:
            free.append(_left(f"{ROOT}/sys/fs/cgroup{path}"))
            path = path.rstrip("/").rpartition("/")[0]
    except (OSError, ValueError, StopIteration):
        pass  # no cgroup v2 here
    return min(free)


def _available() -> int:
    try:
        with open(f"{ROOT}/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize


def _left(folder: str) -> int:
    """What a cgroup may still grow by. The kernel counts its file cache as used, but can drop the inactive part."""
    try:
        with open(f"{folder}/memory.max", encoding="ascii") as file:
            limit = int(file.read())  # "max" is not a number: no limit
        with open(f"{folder}/memory.current", encoding="ascii") as file:
            used = int(file.read())
        with open(f"{folder}/memory.stat", encoding="ascii") as file:
            used -= next(int(line.split()[1]) for line in file if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize
    return limit - used
