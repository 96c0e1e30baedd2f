"""`consume` for coroutines: the handler is a task, beside which its lease is kept.

A handler that must end is cancelled. So is one whose consumer is cancelled itself: its job is given back before the
cancellation goes on. A plain function runs in a thread; it cannot be cancelled, it only sees `ctx.cancelled`.
"""

from __future__ import annotations

import asyncio
import inspect
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


async def run(
    steps: Steps, inbox: TaskInbox, handler: Handler, do: Callable[[OmniqCall[Any]], Coroutine[Any, Any, Any]]
) -> None:
    """Carry out the steps until they end. In the main thread TERM and INT stop it."""
    task: asyncio.Task[None] | None = None
    context: JobContext | None = None
    result: Any = None
    error: BaseException | None = None
    with _signals(inbox):
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
def _signals(inbox: TaskInbox) -> Iterator[None]:
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
