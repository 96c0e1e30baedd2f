"""How much memory a process has in use, and how much is free: read from /proc and the cgroup, without a library."""

from __future__ import annotations

import os
import sys

ROOT = ""  # of the file system


def resident(pid: int) -> int:
    """Bytes in memory; 0 for a process that is gone, and where there is no /proc."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def measurable() -> bool:
    """Whether memory can be measured on this system."""
    return resident(os.getpid()) > 0


def free() -> int:
    """Bytes that this process and its children may still use: of the system, and of its cgroup if that has a limit."""
    rooms = [_available()]
    try:
        with open(f"{ROOT}/proc/self/cgroup", encoding="utf-8") as file:
            path = next(line[3:].strip() for line in file if line.startswith("0::"))
        while path:
            rooms.append(_room(f"{ROOT}/sys/fs/cgroup{path}"))
            path = path.rstrip("/").rpartition("/")[0]
    except (OSError, ValueError, StopIteration):
        pass  # no cgroup v2 here
    return min(rooms)


def _available() -> int:
    try:
        with open(f"{ROOT}/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize


def _room(folder: str) -> int:
    """What a cgroup may still grow by. Its file cache counts as used there, though most of it can be given up."""
    try:
        with open(f"{folder}/memory.max", encoding="ascii") as file:
            limit = int(file.read())  # "max" is no number: no limit
        with open(f"{folder}/memory.current", encoding="ascii") as file:
            used = int(file.read())
        with open(f"{folder}/memory.stat", encoding="ascii") as file:
            used -= next(int(line.split()[1]) for line in file if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return sys.maxsize
    return limit - used
