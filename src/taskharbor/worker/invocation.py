"""The call of a handler: bind the payload, go through middleware, call it where it belongs.

    call ─► a coroutine without middleware or metadata: the handler's own coroutine, nothing around it
         └► middleware ─► invoke ─► process=True: a child process
                                 ├► injected parameters: what they need is opened before and closed after (`injector`)
                                 ├► a coroutine: on the worker's loop, inside call middleware
                                 └► a plain function: in a thread, inside call middleware

It decides nothing about the job: the caller awaits the result and turns it into an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from taskharbor.drivers.base import SqlDriver
from taskharbor.model.errors import BackendUnavailable, TaskHarborError
from taskharbor.model.events import JobProgress
from taskharbor.model.job import JobRecord
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler
from taskharbor.tasks.options import PROCESS_KEY
from taskharbor.tasks.steps import Steps
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.middleware import await_within, call_within, wrap
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.step_calls import DeliverySteps, StepSaver
from taskharbor.worker.threads import Scarce, Threads, unwrap
from taskharbor.worker.transaction import HandlerTransaction

if TYPE_CHECKING:
    from taskharbor.worker.child_processes import ChildProcesses


class Unread(Exception):
    """The steps of a job could not be read. Its handler was not called."""


NO_CONTEXT = JobContext(JobRecord(id="none", type="none"))  # for handlers that take no context: nothing reads it


class Invocation(Part):
    """Calls handlers. `running`: the deliveries that occupy slots."""

    def __init__(
        self,
        parts: WorkerParts,
        running: Collection[Delivery],
        lose: Callable[[Delivery, TaskHarborError], None],
    ) -> None:
        super().__init__(parts)
        driver = parts.driver
        self._middleware = parts.middleware
        self._call_middleware = parts.call_middleware
        self._is_bare = not (self._middleware or self._call_middleware)
        self._running = running
        self._transactions = cast(SqlDriver, driver) if hasattr(driver, "transaction") else None
        self._injector = parts.injector
        self._may_use_children = parts.child_processes
        self._threads = Threads("taskharbor-job")
        self._saver = StepSaver(parts, lose, self._threads)
        self._children: ChildProcesses | None = None  # made for the first job that needs one

    def call(self, delivery: Delivery, handler: Handler) -> Awaitable[Any]:
        """Return what to await for the handler's result.

        The usual case returns the handler's own coroutine: a context and one more coroutine around it would cost 5 % of
        what a job costs on the memory store (6,100 of 123,000 instructions).
        """
        if delivery.job.has_memos and delivery.memos is None:
            return self._call_again(delivery, handler)
        if handler.is_direct and self._is_bare and not delivery.job.metadata:
            bind = handler.bind  # a closure in a slot: read first, because CPython is slow to call it as a method
            args, kwargs = bind(delivery.job.payload, self._context(delivery) if handler.takes_context else NO_CONTEXT)
            coroutine: Awaitable[Any] = handler.function(*args, **kwargs)
            return coroutine
        if self._middleware:
            return wrap(self._middleware, partial(self._invoke, delivery, handler))(self._context(delivery))
        return self._invoke(delivery, handler, self._context(delivery))

    async def _call_again(self, delivery: Delivery, handler: Handler) -> Any:
        """The call of a handler that has stored steps: they are read before it."""
        try:
            delivery.memos = tuple(await self._driver.steps(delivery.job.id))
        except (BackendUnavailable, OSError) as error:
            self._outage.failed("steps", error)
            raise Unread("its steps could not be read") from error
        self._outage.answered("steps")
        return await self.call(delivery, handler)

    async def close(self, hurry: asyncio.Event) -> None:
        """End idle threads and child processes; busy ones end with what they are doing."""
        if self._children is not None:
            await self._children.close(hurry)
        self._threads.close()

    async def _invoke(self, delivery: Delivery, handler: Handler, context: JobContext) -> Any:
        if delivery.stop_reason:
            raise asyncio.CancelledError  # middleware ignored its cancellation: do not call the handler
        wanted = delivery.job.metadata.get(PROCESS_KEY)
        if wanted is not None or handler.is_special:
            if not handler.is_resolved:
                handler.prepare()  # its annotations named what was defined after it
            if (handler.process if wanted is None else wanted == "1") and self._may_use_children:
                try:
                    return await self._child_processes().run(delivery, handler, context, self._call_middleware)
                finally:
                    delivery.kill = None  # what middleware does from here on can only be cancelled
            if handler.injection is not None:
                return await self._inject(delivery, handler, context)
        args, kwargs = handler.bind(delivery.job.payload, context)
        call = partial(handler.function, *args, **kwargs)
        if handler.is_coroutine:
            return await (await_within(self._call_middleware, context, call) if self._call_middleware else call())
        if self._call_middleware:
            call = partial(call_within, self._call_middleware, context, call)
        return await self._in_thread(delivery, call)

    async def _inject(self, delivery: Delivery, handler: Handler, context: JobContext) -> Any:
        """Call a handler that has injected parameters."""

        def check() -> None:
            if delivery.stop_reason or delivery.decided:
                raise asyncio.CancelledError  # what it needs was opened too late: do not call the handler

        in_thread = partial(self._in_thread, delivery)
        delivery.closes_later = not handler.is_coroutine and bool(self._injector.injection_of(handler).on_loop)
        try:
            return await self._injector.call(
                handler, delivery.job.payload, context, self._call_middleware, in_thread, check
            )
        finally:
            delivery.closes_later = False

    def _child_processes(self) -> ChildProcesses:
        """Imported here: `multiprocessing` is a twentieth of what importing a worker costs, and few jobs need it."""
        if self._children is None:
            try:
                from taskharbor.worker.child_processes import ChildProcesses
            except OSError as error:  # no file descriptor is left to read it with
                raise Scarce(f"no child process could be started: {error.strerror}") from None

            self._children = ChildProcesses(self._threads, self._injector)
        return self._children

    async def _in_thread(self, delivery: Delivery, call: partial[Any]) -> Any:
        """Call a plain function in a thread, and raise what it raised as if it had been called here."""
        value: Any = None
        raised: BaseException | None = None
        delivery.in_thread = True
        try:
            value = await self._threads.run(call)
        except asyncio.CancelledError:  # not by us: middleware stops waiting for the function, which goes on
            delivery.left_behind = True
            raise
        except Exception as error:
            # Middleware sees what was raised. Only a StopIteration stays wrapped: no coroutine may raise one.
            raised = unwrap(error)
            if issubclass(type(raised), StopIteration):
                raised = error
        finally:
            delivery.in_thread = False
        if delivery.stop_reason:
            raise asyncio.CancelledError  # the job is decided: middleware sees what it would see around a coroutine
        if raised is not None:
            raise raised
        return value

    def _context(self, delivery: Delivery) -> JobContext:
        begin = None if self._transactions is None else partial(self._begin_transaction, delivery)
        on_progress = partial(self._on_progress, delivery)
        steps = partial(self._steps, delivery)
        context = delivery.context = JobContext(
            delivery.job, self._worker, delivery.deadline, on_progress, begin, steps
        )
        return context

    def _steps(self, delivery: Delivery) -> Steps:
        """What the first use of a step calls, in the handler's thread."""
        assert delivery.handler is not None
        codec = delivery.handler.signature.codec
        return Steps(codec, delivery.memos or (), DeliverySteps(self._saver, delivery))

    def _begin_transaction(self, delivery: Delivery) -> Any:
        """What `ctx.transaction()` calls, in the handler's thread."""
        if delivery.transaction is not None:
            raise RuntimeError("ctx.transaction() was called before: a job has one transaction, which ends with it")
        assert self._transactions is not None
        assert delivery.handler is not None
        is_coroutine = delivery.handler.is_coroutine
        transaction = HandlerTransaction(self._transactions, delivery.lease, is_coroutine, self._threads)
        delivery.transaction = transaction
        # Checked after the assignment: if the loop decides the job at this moment, it ends the transaction it sees.
        if delivery.decided or delivery.left_behind or delivery not in self._running:
            raise RuntimeError("ctx.transaction() was called after its job had ended")
        return transaction.given

    def _on_progress(self, delivery: Delivery, job: JobRecord, done: float, total: float | None, note: str) -> None:
        """What `ctx.progress()` calls, in the handler's thread."""
        self._observers.emit(JobProgress(job, self._worker, done, total, note))
        if self._notes is not None:
            self._notes.report(delivery, done, total, note)
