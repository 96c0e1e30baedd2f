"""The executor: runs handlers and turns how they end into outcomes. It touches no storage.

    start ─► unknown type: given back          ─► lost too often: dead          ─► suspect: waits to run alone
          ├► a workflow's join: done, there is nothing to run
          └► launch ─► bind, middleware, handler ─► returned / raised ─► one outcome to the settler

A job whose lease was lost before (`lost > 0`) may be one that takes its worker down: it runs alone in its
process, so that only the one that kills is blamed. Found beside running jobs it waits until they have ended; while
it waits and runs, no more jobs are taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from taskharbor.drivers.contract import SqlDriver
from taskharbor.model.clock import Clock
from taskharbor.model.current import CURRENT, is_wanted, note_handler_tasks
from taskharbor.model.errors import DriverError, InvalidJob, JobNotInflight, TaskHarborError
from taskharbor.model.events import (
    JobCancelled,
    JobProgress,
    JobReserved,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    Observers,
    OutcomeRefused,
)
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack, Outcome
from taskharbor.policy import decide
from taskharbor.policy.retry import RetryPolicy
from taskharbor.tasks.context import JobContext
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.marks import JOIN_TYPE
from taskharbor.tasks.options import PROCESS_KEY
from taskharbor.worker.binder import Unbindable
from taskharbor.worker.change import Change
from taskharbor.worker.children import Children
from taskharbor.worker.deadlines import Deadlines
from taskharbor.worker.endings import Endings, Refusal
from taskharbor.worker.middleware import CallMiddleware, Middleware, await_within, call_within, wrap
from taskharbor.worker.patience import leave_behind
from taskharbor.worker.run import Run
from taskharbor.worker.settings import Settings
from taskharbor.worker.settler import UNKNOWN_TYPE, tell_spawned
from taskharbor.worker.threads import Threads, unwrap
from taskharbor.worker.transaction import HeldTransaction

UNKNOWN_TYPE_DELAY = 10.0  # seconds, plus up to a half: another worker may know the type
UNREAD_DELAY = 1.0  # seconds, plus up to a half: the results of what came before could not be read
CANCEL_GRACE = 5.0  # seconds; how long a cancelled coroutine may take to end before it is decided without it
SHUTDOWN, TIMEOUT = "shutdown", "timeout"
NOTHING: Mapping[str, Exception] = {}
NOBODY = JobContext(JobRecord(id="nobody", type="nobody"))  # in place of a context that the handler does not take


class Executor:
    """Runs jobs in the worker's slots. Everything here happens on the worker's loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        handlers: HandlerRegistry,
        middleware: Sequence[Middleware],
        call_middleware: Sequence[CallMiddleware] = (),
        retry: RetryPolicy,
        clock: Clock,
        observers: Observers,
        held: dict[str, Run],
        submit: Callable[[Run, Outcome], None],
        transactions: SqlDriver | None = None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._middleware = tuple(middleware)
        self._call_middleware = tuple(call_middleware)
        self._is_bare = not (self._middleware or self._call_middleware)  # a handler is called with nothing around it
        self._endings = Endings(settings=settings, retry=retry, clock=clock, observers=observers)
        self._clock = clock
        self._observers = observers
        self._held = held
        self.submit = submit
        self._transactions = transactions
        self.running: dict[Run, None] = {}  # what takes a slot, in the order of starting
        self.deadlines = Deadlines(clock, self.running, self._on_due)
        self._threads = Threads("taskharbor-job")
        self._children = Children(self._threads)
        self._suspect: Run | None = None
        self._cautious = False
        self._stopping = False
        self.changed = Change()
        self._create_task = _task_maker(asyncio.get_running_loop())
        self._monotonic = clock.monotonic

    # Slots ---------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many jobs may be taken now."""
        if self._suspect is not None or self._stopping:
            return 0
        free = self._settings.concurrency - len(self.running)
        # After a suspect more of them may follow: taking one at a time spares giving the others back.
        return min(free, 1) if self._cautious else free

    def start(self, batch: Sequence[Reserved], unbound: Mapping[str, Exception] = NOTHING) -> None:
        """Take charge of reserved jobs: each is run, or its outcome decided at once.

        `unbound`: why a job, by the token of its lease, could not be given the results that it waits for.
        """
        tells = self._observers.hears(JobReserved)
        self._tells_start = self._observers.hears(JobStarted)
        self._tells_success = self._observers.hears(JobSucceeded)
        self._notes_current = is_wanted()
        self._cautious = False
        # A suspect that an idle worker finds runs at once. What came with it goes back: waiting beside it, it would be
        # blamed for its crash; and run before it, it might be a killer itself, for which the suspect would be blamed.
        suspects = not self._held and any(reserved.job.lost for reserved in batch)
        held, running, handler_of = self._held, self.running, self._handlers.get
        create_task, execute = self._create_task, self._execute
        # Told apart once, not for each job.
        plain = not (tells or self._stopping or unbound or suspects)
        for reserved in batch:
            job, lease = reserved.job, reserved.lease
            handler = handler_of(job.type)
            run = held[lease.token] = Run(job, lease, handler)
            if plain and handler is not None and not job.lost:
                timeout = job.timeout or handler.timeout
                if timeout is not None:
                    self._watch(run, timeout)
                running[run] = None
                run.task = create_task(execute(run, handler), name=job.id)
                continue
            if tells:
                self._observers.emit(JobReserved(job, self._settings.name))
            if self._stopping:
                self._give_back(run, SHUTDOWN)
            elif handler is None:
                self._without_handler(run)
            elif unbound and (problem := unbound.get(lease.token)) is not None:
                self._without_results(run, problem)
            elif job.lost:
                self._take_suspect(run)
            elif suspects:
                self._give_back(run, "a suspect runs alone first")
            else:
                self._launch(run, handler)
        if self._suspect is not None:
            self._launch_suspect()

    def _without_handler(self, run: Run) -> None:
        if run.job.type == JOIN_TYPE:
            self._decide(run, Ack(run.lease))
        else:
            self._give_back_for(run, UNKNOWN_TYPE, UNKNOWN_TYPE_DELAY)

    def _without_results(self, run: Run, problem: Exception) -> None:
        if isinstance(problem, Unbindable):
            self._decide(run, self._endings.failed(run, Refusal(str(problem))))
        else:
            self._give_back_for(run, "the results that it waits for could not be read", UNREAD_DELAY)

    def _give_back_for(self, run: Run, why: str, seconds: float) -> None:
        delay = timedelta(seconds=seconds * (1 + random.random() / 2))
        self._give_back(run, why, decide.after(self._clock.now(), delay))

    # Suspects ------------------------------------------------------------------------------------------------

    def _take_suspect(self, run: Run) -> None:
        self._cautious = True
        if run.job.lost >= self._settings.max_lost:
            self._decide(run, self._endings.final(run, decide.crashed(run.job, run.lease, self._clock.now())))
        elif self._suspect is None:
            self._suspect = run
        else:
            # Holding it while the other runs would blame it, too, if that one takes the process down.
            self._give_back(run, "another suspect runs alone first")

    def _launch_suspect(self) -> None:
        """Once nothing else is held: an outcome still on its way would be lost with the process, and its job blamed."""
        suspect = self._suspect
        if suspect is not None and suspect.task is None and all(run is suspect for run in self._held.values()):
            assert suspect.handler is not None
            self._launch(suspect, suspect.handler)

    def on_settled(self) -> None:
        """The settler has written, or given up, what it had."""
        if self._suspect is not None:
            self._launch_suspect()
        self.changed.give()

    # Running -------------------------------------------------------------------------------------------------

    def _launch(self, run: Run, handler: Handler) -> None:
        timeout = run.job.timeout or handler.timeout
        if timeout is not None:
            self._watch(run, timeout)
        self.running[run] = None
        run.task = self._create_task(self._execute(run, handler), name=run.job.id)

    def _watch(self, run: Run, timeout: timedelta) -> None:
        run.deadline = self._clock.now() + timeout
        run.due = self._monotonic() + timeout.total_seconds()
        self.deadlines.watch(run.due)

    async def _execute(self, run: Run, handler: Handler) -> None:
        """One job from the call of its handler to its outcome. The first branch is the hot path: no step too many."""
        # What is kept in an attribute and called is read first: CPython finds a call of it as a method slowly.
        monotonic, submit, bind = self._monotonic, self.submit, handler.bind
        run.began = monotonic()
        run.started = True
        if run.stop_reason:  # it was interrupted between its launch and this first step
            self._on_raised(run, asyncio.CancelledError())
            return self._on_ended(run)
        if self._notes_current:
            CURRENT.set(run.job)
        if self._tells_start:
            self._observers.emit(JobStarted(run.job, self._settings.name))
        try:
            if handler.is_direct and self._is_bare and not run.job.metadata:
                args, kwargs = bind(run.job.payload, self._context(run) if handler.takes_context else NOBODY)
                value = await handler.function(*args, **kwargs)
            elif self._middleware:
                value = await wrap(self._middleware, partial(self._invoke, run, handler))(self._context(run))
            else:
                value = await self._invoke(run, handler, self._context(run))
        except BaseException as error:
            run.seconds = monotonic() - run.began
            if run.transaction is not None:
                await run.transaction.rollback()
            self._on_raised(run, unwrap(error))
        else:
            if value is None and not (run.transaction or run.decided or run.stop_reason):  # the most common ending
                if self._tells_success:
                    run.seconds = monotonic() - run.began
                run.decided = True
                submit(run, Ack(run.lease))
            else:
                run.seconds = monotonic() - run.began
                if run.transaction is not None:
                    await self._commit(run, run.transaction, value)
                else:
                    self._on_returned(run, value)
        return self._on_ended(run)

    def _context(self, run: Run) -> JobContext:
        begin = None if self._transactions is None else partial(self._begin, run)
        context = run.context = JobContext(run.job, self._settings.name, run.deadline, self._on_progress, begin)
        return context

    async def _invoke(self, run: Run, handler: Handler, context: JobContext) -> Any:
        wanted = run.job.metadata.get(PROCESS_KEY)
        if handler.process if wanted is None else wanted == "1":
            return await self._children.run(run, handler, context, self._call_middleware)
        args, kwargs = handler.bind(run.job.payload, context)
        call = partial(handler.function, *args, **kwargs)
        if handler.is_coroutine:
            return await (await_within(self._call_middleware, context, call) if self._call_middleware else call())
        if self._call_middleware:
            call = partial(call_within, self._call_middleware, context, call)
        try:
            return await self._threads.run(call)
        except Exception as error:
            # Middleware sees what was raised; only a StopIteration stays wrapped, which no coroutine may raise.
            raised = unwrap(error)
            if isinstance(raised, StopIteration):
                raise
            raise raised from raised.__cause__

    # Transactions --------------------------------------------------------------------------------------------

    def _begin(self, run: Run) -> Any:
        if run.transaction is not None:
            raise RuntimeError("ctx.transaction() was called before: a job has one transaction, which ends with it")
        assert self._transactions is not None
        assert run.handler is not None
        run.transaction = HeldTransaction.begin(self._transactions, run.lease, run.handler.is_coroutine, self._threads)
        return run.transaction.given

    async def _commit(self, run: Run, transaction: HeldTransaction, value: Any) -> None:
        """The handler's writes and the job's ack, together or not at all; nothing may interrupt it from here on."""
        if run.decided or run.stop_reason == TIMEOUT:
            await transaction.rollback()
            return self._on_returned(run, value)
        outcome = self._endings.returned(run, value)
        if not isinstance(outcome, Ack):
            await transaction.rollback()
            return self._decide(run, outcome)
        run.decided = True
        try:
            refused = await transaction.commit(outcome, self._clock.now())
        except Exception as error:
            # Nobody knows whether it was committed, so it must not be acked apart from the writes: when the lease is
            # over the job is done, or it runs again.
            refused = DriverError(f"its transaction ended with {type(error).__name__}")
        if isinstance(refused, InvalidJob) and outcome.spawn:  # rolled back, and it would be refused again
            reason = f"its workflow cannot be stored: {refused}"
            return self._decide(run, self._endings.failed(run, Refusal(reason)))
        self._held.pop(run.lease.token, None)
        if refused is None:
            self._observers.emit(JobSucceeded(run.job, self._settings.name, run.seconds))
            tell_spawned(self._observers, outcome.spawn, self._settings.name)
        else:
            self._observers.emit(OutcomeRefused(run.job, self._settings.name, refused))
        return self.on_settled()

    # Endings -------------------------------------------------------------------------------------------------

    def _on_returned(self, run: Run, value: Any) -> None:
        if not run.decided:
            timed_out = run.stop_reason == TIMEOUT
            self._decide(run, self._endings.timed_out(run) if timed_out else self._endings.returned(run, value))

    def _on_raised(self, run: Run, error: BaseException) -> None:
        if run.decided:
            return
        if run.stop_reason == TIMEOUT:
            self._decide(run, self._endings.timed_out(run, error))
        elif run.stop_reason == SHUTDOWN:
            self._give_back(run, SHUTDOWN)  # it was interrupted: whatever it raised on its way out is our doing
        else:
            self._decide(run, self._endings.failed(run, error))

    def _give_back(self, run: Run, why: str, run_at: datetime | None = None) -> None:
        run.why = why
        self._decide(run, decide.give_back(run.job, run.lease, run_at))

    def _decide(self, run: Run, outcome: Outcome) -> None:
        run.decided = True
        self.submit(run, outcome)

    def _on_ended(self, run: Run) -> None:
        self.running.pop(run, None)
        if self._suspect is not None:
            if run is self._suspect:
                self._suspect = None
            else:
                self._launch_suspect()
        if not self.changed.given:
            self.changed.give()

    # From outside --------------------------------------------------------------------------------------------

    def _on_due(self, run: Run, now: float) -> None:
        """A timeout. A coroutine is cancelled and may clean up for a moment; a thread can only be told."""
        handler = run.handler
        interruptible = run.kill is not None or (handler is not None and handler.is_coroutine)
        if run.stop_reason != TIMEOUT and not run.decided:
            run.stop_reason = TIMEOUT
            run.tell_to_stop(TIMEOUT)
            if interruptible:
                run.due = now + CANCEL_GRACE
                run.interrupt()
                return
        run.due = None
        if not run.decided:
            run.seconds = self._clock.monotonic() - run.began
            self._decide(run, self._endings.timed_out(run))
            self._launch_suspect()

    def lose(self, run: Run, error: TaskHarborError) -> None:
        """The lease of a run is gone: tell its handler, and forget what it will return."""
        if run.decided:
            return
        # Nobody holds it, not even another worker: so somebody took it away, and that is what cancelling does. Unless
        # the lease was over: then another worker may have taken it, and finished it already.
        cancelled = isinstance(error, JobNotInflight) and run.lease.expires_at > self._clock.now()
        reason = "cancelled" if cancelled else "lease lost"
        if cancelled:
            self._observers.emit(JobCancelled(run.job, self._settings.name, "cancelled while it ran"))
        else:
            self._observers.emit(LeaseLost(run.job, self._settings.name, error))
        run.decided = True
        run.due = None
        run.stop_reason = reason
        self._held.pop(run.lease.token, None)
        run.tell_to_stop(reason)
        run.interrupt()
        if run.task is None:
            self._on_ended(run)

    def _on_progress(self, job: JobRecord, done: float, total: float | None, note: str) -> None:
        self._observers.emit(JobProgress(job, self._settings.name, done, total, note))

    # Stopping ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more: what a reserve still brings is given back at once."""
        self._stopping = True

    async def stop(self, hurry: asyncio.Event) -> None:
        """Let what runs finish within the grace period, or until `hurry`; give the rest back at once."""
        self.close()
        if self._suspect is not None and self._suspect.task is None:
            suspect, self._suspect = self._suspect, None
            self._give_back(suspect, SHUTDOWN)
        for run in self.running:
            run.tell_to_stop(SHUTDOWN)
        await self._wait_until_decided(self._clock.sleep(self._settings.shutdown_timeout), hurry.wait())
        for run in self._undecided():
            run.stop_reason = SHUTDOWN
            run.interrupt()
            if run.kill is None and run.handler is not None and not run.handler.is_coroutine:
                self._give_back(run, SHUTDOWN)
        await self._wait_until_decided(asyncio.sleep(1.0))
        for run in self._undecided():
            self._give_back(run, SHUTDOWN)
        await self.deadlines.stop()
        self._children.close()
        self._threads.close()
        leave_behind(run.task for run in self.running if run.task is not None and run.task.cancelling())

    def _undecided(self) -> list[Run]:
        return [run for run in self.running if not run.decided]

    async def _wait_until_decided(self, *limits: Any) -> None:
        """Wait until every running job is decided, or one of the limits is over."""
        over = [asyncio.ensure_future(limit) for limit in limits]
        try:
            while self._undecided() and not any(limit.done() for limit in over):
                self.changed.clear()
                change = asyncio.ensure_future(self.changed.wait())
                await asyncio.wait((change, *over), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
        finally:
            for limit in over:  # not awaited: this may be a coroutine that is thrown away with its loop
                limit.cancel()


note_handler_tasks(Executor._execute)


class _MakesTasks(Protocol):
    def __call__(self, coroutine: Coroutine[Any, Any, None], /, *, name: str) -> asyncio.Task[None]: ...


def _task_maker(loop: asyncio.AbstractEventLoop) -> _MakesTasks:
    """`loop.create_task` without its wrapping (a tenth of what a job costs), where the loop adds nothing to it."""
    if loop.get_task_factory() is None and type(loop).create_task is asyncio.BaseEventLoop.create_task:
        return partial(asyncio.Task, loop=loop)
    return loop.create_task
