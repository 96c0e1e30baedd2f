"""How much memory a process has in use: read from /proc, which needs no library."""

from __future__ import annotations

import os


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
