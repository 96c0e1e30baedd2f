"""Threads that do a coroutine's work: `CallThread` for batches of calls, `BackgroundThread` for anything else.

    call ──► SimpleQueue ──► thread: batch, batch, … ──► one hop to each event loop

Calls that wait together share a transaction. A call whose future was cancelled before its turn is left out. Each thread
is started by the first call that needs it: a program that only makes blocking calls has none.
"""

from __future__ import annotations

import asyncio
import enum
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from taskharbor.drivers.sqlite.own_call import ANY_FILE, call_on_this_thread
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.scarcity import missing

T = TypeVar("T")
S = TypeVar("S")
W = TypeVar("W")

MAX_BATCH_CALLS = 64  # in one transaction


class PendingResult(Generic[T]):
    """A result that a coroutine waits for on its event loop."""

    __slots__ = ("future", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()


class Call(PendingResult[T], Generic[S, T]):
    """A call that waits for its turn. `durable`: it returns only when it would survive a power cut."""

    __slots__ = ("durable", "work")

    def __init__(self, work: Callable[[S], T], durable: bool = False) -> None:
        super().__init__()
        self.work = work
        self.durable = durable


class Failed:
    """In place of a result: the exception to raise."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Signal(enum.Enum):
    """What a thread is sent between items of work."""

    STOP = enum.auto()
    WAKE = enum.auto()  # there is something to do beside calls


class WorkThread(Generic[W]):
    """A thread that passes what waits together to `work`, in the order in which it came."""

    most_together = sys.maxsize

    def __init__(self, name: str, work: Callable[[list[W]], None]) -> None:
        self._name = name
        self._work = work
        self._items: queue.SimpleQueue[W | Signal] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_busy = False

    def put(self, item: W | Signal) -> None:
        """Have something done; BackendUnavailable, and nothing is done, if the system has no thread for it."""
        self.start()
        self._items.put(item)
        self.start()  # it was stopped in between

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        raise BackendUnavailable(f"SQLite: {missing(error) or error}") from error
                    self._thread = thread

    def stop(self, *, wait: bool = True) -> None:
        """Let the thread end when it has done what waits. What is put later starts another one."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._items.put(Signal.STOP)
            if wait:
                thread.join()

    def _run(self) -> None:
        stopping = False
        with call_on_this_thread(ANY_FILE):
            while not stopping:
                items, stopping = self._gather()
                self._work(items)
                self._is_busy = False
                del items  # or this thread would keep alive what nothing needs any more

    def _gather(self) -> tuple[list[W], bool]:
        """The items that wait together, and whether to stop after them."""
        items: list[W] = []
        item = self._items.get()
        self._is_busy = True
        try:
            while item is not Signal.STOP:
                if not isinstance(item, Signal):
                    items.append(item)
                if len(items) == self.most_together:
                    return items, False
                item = self._items.get_nowait()
        except queue.Empty:
            return items, False
        return items, True


class CallThread(WorkThread[Call[S, Any]]):
    """A thread that passes batches of calls to `run_batch`, and calls `between` after each.

    `run_batch` returns the function that delivers the results. It is called when the thread is idle again: a coroutine
    that gets its result may then make its next call inline.
    """

    most_together = MAX_BATCH_CALLS

    def __init__(
        self,
        name: str,
        run_batch: Callable[[list[Call[S, Any]]], Callable[[], None]],
        between: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(name, self._run_calls)
        self._run_batch = run_batch
        self._between = between

    def is_idle(self) -> bool:
        """Whether it has nothing to do and nothing waits."""
        return not self._is_busy and self._items.empty()

    def _run_calls(self, calls: list[Call[S, Any]]) -> None:
        batch = [call for call in calls if not call.future.cancelled()]
        deliver_results = self._run_batch(batch) if batch else None
        self._is_busy = False
        if deliver_results is not None:
            deliver_results()
            del deliver_results, batch
            calls.clear()
        if self._between is not None:
            self._between()


class BackgroundThread(WorkThread[Callable[[], object]]):
    """A thread for work that would block an event loop: the lock between processes, and the disk.

    It does what it is given in order and to the end, even when the coroutine that waits for it is cancelled.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, _do_all)

    async def run(self, work: Callable[[], T]) -> T:
        """Have something done, and return its result."""
        pending: PendingResult[T] = PendingResult()

        def done() -> None:
            try:
                result: T | Failed = work()
            except BaseException as error:
                result = Failed(error)
            deliver([(pending, result)])

        self.put(done)
        return await pending.future


def _do_all(given: list[Callable[[], object]]) -> None:
    for work in given:
        try:
            work()
        except Exception:  # no coroutine waits for it: what could not be undone ends with the process
            pass


def deliver(results: Iterable[tuple[PendingResult[Any], Any]]) -> None:
    """Resolve futures with one hop to each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for pending, result in results:
        loops.setdefault(pending.loop, []).append((pending.future, result))
    for loop, futures in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            pass  # the loop was closed: no coroutine waits any more


def _resolve(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in results:
        if future.done():  # cancelled meanwhile
            continue
        if isinstance(result, Failed):
            future.set_exception(result.error)
        else:
            future.set_result(result)
