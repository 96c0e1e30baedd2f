"""A process's turns at writing to its file: one at a time, in the order in which they were asked for.

A thread waits for its turn by sleeping, a coroutine by a future of its loop. So a coroutine that waits takes no thread,
and no waiting caller can keep the one whose turn it is from ending it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from taskharbor.model.errors import BackendUnavailable

IsInterrupted: TypeAlias = Callable[[], bool]  # whether a blocking call should give up waiting: Ctrl-C was pressed

INTERRUPT_CHECK_S = 0.05


class Turn:
    """A place in the line. `has_come`: it is its turn, which has to be ended. `is_given_up`: before it came."""

    __slots__ = ("asked_at", "has_come", "is_given_up", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.asked_at = time.monotonic()
        self.has_come = False
        self.is_given_up = False
        self.wake = wake


class Turns:
    """The line of callers that want to write to a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._line: deque[Turn] = deque()
        self._is_taken = False
        self._taken_at = 0.0

    def try_take(self) -> bool:
        """Take the turn if it is free: then no caller waits for it."""
        with self._guard:
            if self._is_taken:
                return False
            self._is_taken = True
            self._taken_at = time.monotonic()
            return True

    def ask(self, wake: Callable[[], object]) -> Turn:
        """Stand in line. `wake` is called, in any thread, when the turn comes later or is given up."""
        turn = Turn(wake)
        with self._guard:
            if self._is_taken:
                self._line.append(turn)
            else:
                self._is_taken = turn.has_come = True
                self._taken_at = time.monotonic()
        return turn

    def give_up(self, turn: Turn) -> bool:
        """Leave the line. False: the turn has come already."""
        with self._guard:
            if turn.has_come:
                return False
            if not turn.is_given_up:
                turn.is_given_up = True
                self._line.remove(turn)
        turn.wake()
        return True

    def end(self) -> None:
        """The turn is over: it is the next caller's."""
        while True:
            with self._guard:
                if not self._line:
                    self._is_taken = False
                    return
                turn = self._line.popleft()
                turn.has_come = True
                self._taken_at = time.monotonic()
            try:
                turn.wake()
                return
            except RuntimeError:  # the event loop it waited on was closed: no one is there to take it
                continue

    # Waiting

    def take(self, timeout: float, is_interrupted: IsInterrupted | None = None) -> None:
        """Wait for a turn. BackendUnavailable if another caller keeps it for `timeout` seconds."""
        come = threading.Event()
        self.wait(self.ask(come.set), come, timeout, is_interrupted)

    def wait(
        self, turn: Turn, woken: threading.Event, timeout: float, is_interrupted: IsInterrupted | None = None
    ) -> None:
        """The same for a place in line that another thread may give up (`give_up`): that is BackendUnavailable too."""
        try:
            while not turn.has_come:
                left = self._left(turn, timeout)
                if turn.is_given_up or (left <= 0 and self.give_up(turn)):
                    raise self._refused(timeout)
                if is_interrupted is None:
                    woken.wait(max(left, 0.001))
                else:
                    if is_interrupted():
                        raise BackendUnavailable(f"{self._path}: interrupted while waiting to write")
                    woken.wait(min(max(left, 0.001), INTERRUPT_CHECK_S))
        except BaseException:
            self._drop(turn)
            raise

    async def take_async(self, timeout: float) -> None:
        """The same for a coroutine."""
        loop = asyncio.get_running_loop()
        come: asyncio.Future[None] = loop.create_future()
        turn = self.ask(lambda: loop.call_soon_threadsafe(_wake, come))
        try:
            while not turn.has_come:
                left = self._left(turn, timeout)
                if left <= 0 and self.give_up(turn):
                    raise self._refused(timeout)
                await asyncio.wait([come], timeout=max(left, 0.001))
        except BaseException:
            self._drop(turn)
            raise

    def _drop(self, turn: Turn) -> None:
        if not turn.is_given_up and not self.give_up(turn):
            self.end()

    def _left(self, turn: Turn, timeout: float) -> float:
        """Seconds that are left to wait. They count from the start of the present turn, not for all before us."""
        return max(turn.asked_at, self._taken_at) + timeout - time.monotonic()

    def _refused(self, timeout: float) -> BackendUnavailable:
        return BackendUnavailable(
            f"{self._path}: a transaction of this process has held its write lock for {timeout:g} s. "
            "A handler inside `ctx.transaction()` must not await another call to the same file."
        )


def _wake(come: asyncio.Future[None]) -> None:
    if not come.done():
        come.set_result(None)
