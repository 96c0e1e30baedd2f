"""What a driver offers to callers without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from taskharbor.drivers.base import Driver


class BlockingCalls(Protocol):
    """A driver's calls on the calling thread: without an event loop, and without a thread of their own.

    Any number of threads may call at once. It opens a bounded number of connections, and a call waits for a free one
    until its deadline. An interrupt (KeyboardInterrupt) may end a call between any two instructions: a connection that
    it leaves in the middle of an exchange is closed, never used again.
    """

    def until(self, deadline: float) -> Driver:
        """The driver for one call of the client. Its coroutines never suspend: each does its own I/O before it
        returns, and raises BackendUnavailable when `time.monotonic()` reaches `deadline`."""

    def close(self) -> None:
        """Close every idle connection, and those in use when their call ends. Never waits; closing twice does
        nothing. A later call raises BackendUnavailable."""
