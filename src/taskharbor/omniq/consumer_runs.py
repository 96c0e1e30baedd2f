"""Carrying out the steps of a consumer: `run_in_threads` for plain functions, `run_as_tasks` for coroutines.

A plain function runs in a thread, and the caller's thread keeps its lease. The two share nothing but queues, which
signal handlers may use as well (an Event may not be set from one). A handler that must end gets an exception raised
into its thread, which takes effect at its next step in Python, and once more from time to time (one that comes while an
object is being finalized is thrown away by the interpreter). A handler that does not end in its grace period is left
alone, and its result is ignored.

A coroutine is a task, beside which its lease is kept. A handler that must end is cancelled. So is one whose consumer is
cancelled itself: its job is given back before the cancellation goes on. A plain function that is given there runs in a
thread; it cannot be cancelled, it only sees `ctx.cancelled`.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from taskharbor.omniq.consumer import (
    STOP,
    Ended,
    Handler,
    Happened,
    RunOperation,
    Start,
    Steps,
    Stop,
    Wait,
    is_coroutine_function,
)
from taskharbor.omniq.operations import OmniqCall
from taskharbor.omniq.values import JobContext

SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPT_AGAIN_S = 0.25  # after which a handler that has not ended is interrupted again


class ThreadInbox:
    """Events in their order; `stop` may be called from anywhere."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[_HandlerThread | None, Happened]] = queue.SimpleQueue()

    def stop(self, *_: object) -> None:
        self._queue.put((None, STOP))

    def ended(self, thread: _HandlerThread, error: BaseException | None) -> None:
        self._queue.put((thread, Ended(error)))

    def wait(self, seconds: float, thread: _HandlerThread | None) -> Happened:
        """The next event; the late end of an earlier handler is ignored."""
        try:
            whose, what = self._queue.get(timeout=seconds) if seconds > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        return what if isinstance(what, Stop) or whose is thread else None


class _HandlerThread:
    """A thread that runs one handler after the other, until it is interrupted."""

    def __init__(self, handler: Handler, inbox: ThreadInbox) -> None:
        self._handler, self._inbox = handler, inbox
        self._work: queue.SimpleQueue[JobContext | None] = queue.SimpleQueue()
        self._context: JobContext | None = None
        self.spent: type[BaseException] | None = None
        self._thread = threading.Thread(target=self._run, name="taskharbor-omniq", daemon=True)
        self._thread.start()

    def start(self, context: JobContext) -> None:
        self._context = context
        self._work.put(context)

    def retire(self) -> None:
        self._work.put(None)

    def interrupt(self, error: BaseException) -> None:
        """Raise an exception in the thread. It takes no further work."""
        self.spent = type(error)
        if self._context is not None:
            self._context.cancelled.set()
        self.retire()
        self.interrupt_again()

    def interrupt_again(self) -> None:
        ident = self._thread.ident
        if ident is not None and self._thread.is_alive():
            # The interpreter makes the exception itself: a class without arguments.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(self.spent))

    def _run(self) -> None:
        try:
            while (context := self._work.get()) is not None:
                error: BaseException | None = None
                try:
                    _refuse_awaitable(self._handler(context))
                except BaseException as raised:  # every exception is a failure, SystemExit too; none ends the consumer
                    error = raised
                self._inbox.ended(self, error)
        except BaseException:
            self._inbox.ended(self, None)  # interrupted between two steps of this loop: no result is waited for


def _refuse_awaitable(result: object) -> None:
    """A handler that only returned a coroutine has done nothing."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("the handler returned an awaitable, which is never awaited here; use AsyncOmniQ")


def run_in_threads(steps: Steps, inbox: ThreadInbox, handler: Handler, do: Callable[[OmniqCall[Any]], Any]) -> None:
    """Carry out the steps until they end. In the main thread TERM and INT stop it."""
    thread: _HandlerThread | None = None
    result: Any = None
    error: BaseException | None = None
    try:
        with _stopped_by_signals(inbox):
            while True:
                try:
                    effect = steps.send(result) if error is None else steps.throw(error)
                except StopIteration:
                    return
                result, error = None, None
                if isinstance(effect, RunOperation):
                    try:
                        result = do(effect.operation)
                    except Exception as raised:
                        error = raised
                elif isinstance(effect, Wait):
                    result = _wait(inbox, effect.seconds, thread)
                elif isinstance(effect, Start):
                    if thread is None or thread.spent:
                        thread = _HandlerThread(handler, inbox)
                    thread.start(effect.context)
                elif thread is not None:
                    thread.interrupt(effect.error)
    finally:
        if thread is not None:
            thread.retire()


def _wait(inbox: ThreadInbox, seconds: float, thread: _HandlerThread | None) -> Happened:
    while thread is not None and thread.spent and seconds > INTERRUPT_AGAIN_S:
        happened = inbox.wait(INTERRUPT_AGAIN_S, thread)
        if happened is not None:
            return happened
        seconds -= INTERRUPT_AGAIN_S
        thread.interrupt_again()
    return inbox.wait(seconds, thread)


@contextmanager
def _stopped_by_signals(inbox: ThreadInbox) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, inbox.stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Coroutines


class TaskInbox:
    """Events in their order. Belongs to one event loop; `stop` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[object, Happened]] = asyncio.Queue()
        self.cancelled = False

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, (None, STOP))

    def cancel(self) -> None:
        """The consumer itself was cancelled: two stops, which do not drain."""
        self.cancelled = True
        self._queue.put_nowait((None, STOP))
        self._queue.put_nowait((None, STOP))

    def ended(self, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._queue.put_nowait((task, Ended(error)))

    async def wait(self, seconds: float, task: object) -> Happened:
        try:
            whose, what = (
                await asyncio.wait_for(self._queue.get(), seconds) if seconds > 0 else self._queue.get_nowait()
            )
        except (TimeoutError, asyncio.QueueEmpty):
            return None
        return what if isinstance(what, Stop) or whose is task else None


async def run_as_tasks(
    steps: Steps, inbox: TaskInbox, handler: Handler, do: Callable[[OmniqCall[Any]], Coroutine[Any, Any, Any]]
) -> None:
    """Carry out the steps until they end. In the main thread TERM and INT stop it."""
    task: asyncio.Task[None] | None = None
    context: JobContext | None = None
    result: Any = None
    error: BaseException | None = None
    with _stopped_by_signals_on_loop(inbox):
        while True:
            try:
                effect = steps.send(result) if error is None else steps.throw(error)
            except StopIteration:
                break
            result, error = None, None
            if isinstance(effect, RunOperation):
                try:
                    result = await _whole(do(effect.operation), inbox)
                except Exception as raised:
                    error = raised
            elif isinstance(effect, Wait):
                try:
                    result = await inbox.wait(effect.seconds, task)
                except asyncio.CancelledError:
                    inbox.cancel()
            elif isinstance(effect, Start):
                context = effect.context
                task = asyncio.ensure_future(_call(handler, context))
                task.add_done_callback(inbox.ended)
            elif task is not None and context is not None:
                context.cancelled.set()
                task.cancel()
    if inbox.cancelled:
        raise asyncio.CancelledError


async def _call(handler: Handler, context: JobContext) -> None:
    try:
        result = handler(context) if is_coroutine_function(handler) else await asyncio.to_thread(handler, context)
        if inspect.isawaitable(result):
            await result
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as raised:
        # They would end the event loop, and with it the consumer.
        raise RuntimeError(type(raised).__name__) from raised


async def _whole(work: Coroutine[Any, Any, Any], inbox: TaskInbox) -> Any:
    """Await to the end, also if the consumer is cancelled meanwhile: a grant whose reply is lost is a lost attempt."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            inbox.cancel()


@contextmanager
def _stopped_by_signals_on_loop(inbox: TaskInbox) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    taken = []
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            loop.add_signal_handler(number, inbox.stop)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
