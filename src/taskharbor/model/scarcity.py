"""What the system has no more of, as its errors say it: threads, processes, memory, open files. Quotes no path."""

from __future__ import annotations

import errno
import os

USED_UP = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
REMEDY = (
    "look at the limits of memory (ulimit -v, that of the container), of processes and threads (ulimit -u, pids.max) "
    "and of open files (ulimit -n)"
)


def missing(error: BaseException) -> str:
    """What the system could not give, if this error says so; else nothing."""
    if isinstance(error, MemoryError):
        return "no memory is left"
    if isinstance(error, OSError) and error.errno in USED_UP:
        return os.strerror(error.errno)
    if type(error) is RuntimeError and str(error) == "can't start new thread":  # Python has no other sign of it
        return "no further thread can be started"
    return ""
