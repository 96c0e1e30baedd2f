"""A process's turns at writing to its file: one at a time, in the order in which they were asked for.

A thread waits for its turn by sleeping, a coroutine by a future of its loop. So a coroutine that waits takes no thread,
and nobody who waits can keep the one whose turn it is from ending it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from taskharbor.model.errors import BackendUnavailable


class Turn:
    """A place in the line. `come`: it is its turn, which has to be ended. `left`: it was given up before."""

    __slots__ = ("asked", "come", "left", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.asked = time.monotonic()
        self.come = False
        self.left = False
        self.wake = wake


class Turns:
    """The line of those who want to write to a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._line: deque[Turn] = deque()
        self._taken = False
        self._since = 0.0  # when the present turn began

    def take_at_once(self) -> bool:
        """Take the turn if nobody has it, and so nobody waits for it."""
        with self._guard:
            if self._taken:
                return False
            self._taken = True
            self._since = time.monotonic()
            return True

    def ask(self, wake: Callable[[], object]) -> Turn:
        """Stand in line. `wake` is called, in any thread, when the turn comes later or is given up."""
        turn = Turn(wake)
        with self._guard:
            if self._taken:
                self._line.append(turn)
            else:
                self._taken = turn.come = True
                self._since = time.monotonic()
        return turn

    def leave(self, turn: Turn) -> bool:
        """Give a place up. False: its turn has come already."""
        with self._guard:
            if turn.come:
                return False
            if not turn.left:
                turn.left = True
                self._line.remove(turn)
        turn.wake()
        return True

    def end(self) -> None:
        """The turn is over: the next one's comes."""
        while True:
            with self._guard:
                if not self._line:
                    self._taken = False
                    return
                turn = self._line.popleft()
                turn.come = True
                self._since = time.monotonic()
            try:
                turn.wake()
                return
            except RuntimeError:  # the event loop it waited on was closed: nobody is there to take it
                continue

    # Waiting

    def take(self, patience: float) -> None:
        """Wait for a turn. BackendUnavailable if whoever has it keeps it for so many seconds."""
        come = threading.Event()
        self.wait(self.ask(come.set), come, patience)

    def wait(self, turn: Turn, woken: threading.Event, patience: float) -> None:
        """The same for a place in line that somebody else may give up (`leave`): that is BackendUnavailable too."""
        try:
            while not turn.come:
                left = self._left(turn, patience)
                if turn.left or (left <= 0 and self.leave(turn)):
                    raise self._refused(turn, patience)
                woken.wait(max(left, 0.001))
        except BaseException:
            self._drop(turn)
            raise

    async def take_async(self, patience: float) -> None:
        """The same for a coroutine."""
        loop = asyncio.get_running_loop()
        come: asyncio.Future[None] = loop.create_future()
        turn = self.ask(lambda: loop.call_soon_threadsafe(_wake, come))
        try:
            while not turn.come:
                left = self._left(turn, patience)
                if left <= 0 and self.leave(turn):
                    raise self._refused(turn, patience)
                await asyncio.wait([come], timeout=max(left, 0.001))
        except BaseException:
            self._drop(turn)
            raise

    def _drop(self, turn: Turn) -> None:
        if not turn.left and not self.leave(turn):
            self.end()

    def _left(self, turn: Turn, patience: float) -> float:
        """For how long one may still wait: patience is with the one whose turn it is, not with all before us."""
        return max(turn.asked, self._since) + patience - time.monotonic()

    def _refused(self, turn: Turn, patience: float) -> BackendUnavailable:
        return BackendUnavailable(
            f"{self._path}: a transaction of this process has held its write lock for {patience:g} s. "
            "A handler inside `ctx.transaction()` must not await another call to the same file."
        )


def _wake(come: asyncio.Future[None]) -> None:
    if not come.done():
        come.set_result(None)
