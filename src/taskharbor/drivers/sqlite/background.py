"""A thread for what a coroutine in its turn may not wait for itself: the lock among processes, and the disk.

One is enough for a file: only the transaction whose turn it is has anything to do here. It does what it is given in
order and to the end, even when the coroutine that waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundThread:
    """The thread, started by the first errand."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def give(self, work: Callable[[], object]) -> None:
        """Have something done; nobody waits for it."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._work.put(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Have something done and wait for its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def errand() -> None:
            try:
                value = work()
            except BaseException as error:
                _tell(loop, answer, None, error)
            else:
                _tell(loop, answer, value, None)

        self.give(errand)
        return await answer

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        with self._guard:
            if self._thread is not None:
                self._thread = None
                self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:  # of an errand that nobody waits for: what could not be undone goes with the process
                pass
            del work


def _tell(
    loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], value: Any, error: BaseException | None
) -> None:
    def resolve() -> None:
        if answer.done():  # cancelled meanwhile
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    try:
        loop.call_soon_threadsafe(resolve)
    except RuntimeError:
        pass  # the loop was closed: nobody is waiting any more
