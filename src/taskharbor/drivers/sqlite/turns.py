"""Turns at writing to the file: `Turns` within this process, `FileLock` between processes. A writer needs both.

A process's callers write one at a time, in the order in which they asked. A thread waits for its turn by sleeping, a
coroutine by a future of its loop. So a coroutine that waits takes no thread, and no waiting caller can keep the one
whose turn it is from ending it.

The lock file beside the database, `<file>-lock`, is a flock that every writer takes before SQLite's own lock. SQLite
lets waiting processes sleep and try again, so one may wait for seconds behind others; the kernel wakes the
waiters of a flock at once, in order. It serves fairness only: SQLite itself keeps out a program that does not take it
(the application's own connections). A flock cannot be waited for with a timeout. So where the lock is not free, a
thread of its own waits for it, and the caller gives up after a while: the process that has it may have been stopped.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from taskharbor.drivers.sqlite import file_guard
from taskharbor.drivers.sqlite.lock_holders import locked_out
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.scarcity import missing

IsInterrupted: TypeAlias = Callable[[], bool]  # whether a blocking call should give up waiting: Ctrl-C was pressed

INTERRUPT_CHECK_S = 0.05
_ASKED_AT = 8  # in the lock file: its first byte wakes other processes, file_guard's notes begin at the sixteenth


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


# Between processes


class _LockWait:
    """One wait for the lock."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.is_given_up = False


class FileLock:
    """The lock, for one thread of this process at a time. Writing to the file wakes processes that wait for work."""

    def __init__(self, path: str) -> None:
        self._database = path
        self.path = f"{path}-lock"
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self._guard = threading.Lock()
        self._waits: queue.SimpleQueue[_LockWait | None] = queue.SimpleQueue()
        self._pending = 0  # waits that the thread has not come to the end of
        self._thread: threading.Thread | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and no caller of this process waits for it."""
        if not self._guard.acquire(blocking=False):
            return False
        try:
            return not self._pending and self._try_flock()
        finally:
            self._guard.release()

    def acquire(self, timeout: float, is_interrupted: IsInterrupted | None = None) -> None:
        """Take the lock; BackendUnavailable after `timeout` seconds, with the process that has it."""
        with self._guard:
            # While the thread waits for a caller that gave up, it would take our lock for its own, and release it.
            if not self._pending and self._try_flock():
                return
            wait = _LockWait()
            self._waits.put(wait)
            self._pending += 1
            if self._thread is None:
                name = "taskharbor-sqlite-lock"
                thread = threading.Thread(target=self._wait, args=(self._file,), name=name, daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the next call tries again
                    wait.is_given_up = True
                    raise BackendUnavailable(f"SQLite: {missing(error) or error}") from error
                self._thread = thread
        if self._wait_for(wait, timeout, is_interrupted):
            return
        with self._guard:
            wait.is_given_up = not wait.has_come.is_set()
        if wait.is_given_up:
            raise BackendUnavailable(locked_out(self._database, timeout))

    def _wait_for(self, wait: _LockWait, timeout: float, is_interrupted: IsInterrupted | None) -> bool:
        if is_interrupted is None:
            return wait.has_come.wait(timeout)
        deadline = time.monotonic() + timeout
        while not is_interrupted() and (left := deadline - time.monotonic()) > 0:
            if wait.has_come.wait(min(left, INTERRUPT_CHECK_S)):
                return True
        return wait.has_come.is_set()

    def _try_flock(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(self, file: int) -> None:
        while (wait := self._waits.get()) is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
            with self._guard:
                self._pending -= 1
                if wait.is_given_up:
                    fcntl.flock(file, fcntl.LOCK_UN)
                else:
                    wait.has_come.set()
        os.close(file)

    def release(self) -> None:
        """Give the lock back."""
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def wake_others(self) -> None:
        """After a commit: other processes see that this file changed, and read what is committed by then."""
        try:
            os.pwrite(self._file, b"!", 0)
        except OSError:  # a full disk costs a wake-up, never a job
            pass

    # Reads that are in the way of a checkpoint. The monotonic clock is the same in all processes of a machine.

    def ask_reads_to_end(self) -> None:
        """Have the reads end that are under way now, in all processes of ours. While the lock is held."""
        os.pwrite(self._file, time.monotonic_ns().to_bytes(8, "little"), _ASKED_AT)

    def reads_asked_to_end_at(self) -> int:
        """When that was last asked for, in nanoseconds."""
        return int.from_bytes(os.pread(self._file, 8, _ASKED_AT), "little")

    def note_wal_owner(self, path: str) -> None:
        """Record in it which -wal file belongs to which database file. While the lock is held."""
        file_guard.note_wal_owner(self._file, path)

    def forget(self) -> None:
        """In a forked child: the lock stays the parent's."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def close(self) -> None:
        """Close the file; a thread that still waits for a caller that gave up does so later."""
        file, self._file = self._file, -1
        if self._thread is not None:
            self._waits.put(None)
        elif file >= 0:
            os.close(file)
