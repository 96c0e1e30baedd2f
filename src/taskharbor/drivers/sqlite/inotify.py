"""Linux's inotify, over ctypes: which files were written to.

Closing a descriptor waits for the kernel, 10 to 30 ms as a rule; adding and removing a file costs microseconds. So a
descriptor that is no longer needed is kept for the next user.
"""

from __future__ import annotations

import ctypes
import os

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_MODIFY, _ONCE = 0x2, 0x8000_0000
_EVENT = 16  # bytes of an event about a file; the first four say which


class Inotify:
    """A descriptor that is readable once one of its files was written to."""

    def __init__(self, libc: ctypes.CDLL, file: int) -> None:
        self._libc = libc
        self.file = file

    def watch(self, path: str, once: bool = False) -> int:
        """Watch a file; returns its number, 0 if it cannot be watched. `once`: until the first write."""
        flags = _MODIFY | _ONCE if once else _MODIFY
        return max(int(self._libc.inotify_add_watch(self.file, os.fsencode(path), ctypes.c_uint32(flags))), 0)

    def forget(self, number: int) -> None:
        self._libc.inotify_rm_watch(self.file, number)

    def changed(self) -> set[int]:
        """The numbers of the files that were written to since the last call, or forgotten."""
        try:
            events = os.read(self.file, 65536)
        except BlockingIOError:
            return set()
        return {int.from_bytes(events[at : at + 4], "little") for at in range(0, len(events), _EVENT)}

    def let_go(self) -> None:
        """Give back a descriptor that watches nothing."""
        if _spare:
            os.close(self.file)
        else:
            _spare.append(self)


_spare: list[Inotify] = []


def _after_fork_in_child() -> None:
    while _spare:
        os.close(_spare.pop().file)  # an event that the child reads is lost to the parent


os.register_at_fork(after_in_child=_after_fork_in_child)


def inotify() -> Inotify | None:
    """A descriptor that watches nothing yet, or None if the platform has no inotify."""
    try:
        return _spare.pop()
    except IndexError:
        pass
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.inotify_init1(_FLAGS))
    except (AttributeError, OSError):
        return None
    return Inotify(libc, file) if file >= 0 else None
