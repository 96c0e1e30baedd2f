"""The executor: runs handlers and turns how they end into outcomes. It touches no storage.

    start ─► unknown type: given back          ─► lost too often: dead          ─► suspect: waits to run alone
          ├► a workflow's join: done, there is nothing to run
          └► launch ─► bind, middleware, handler ─► returned / raised ─► one outcome to the settler

A job whose lease was lost twice (`policy.suspects`) may be one that takes its worker down: it runs alone in its
process, so that only the one that kills is blamed. Found beside running jobs it waits until they have ended; while
it waits and runs, no more jobs are taken. Once its outcome is stored they are, whether or not its function has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from taskharbor.drivers.contract import SqlDriver
from taskharbor.model.clock import Clock
from taskharbor.model.current_job import CURRENT, is_wanted, note_handler_tasks
from taskharbor.model.errors import JobNotInflight, TaskHarborError
from taskharbor.model.events import (
    HandlerFreed,
    HandlerStuck,
    JobCancelled,
    JobProgress,
    JobReserved,
    JobStarted,
    JobSucceeded,
    LeaseLost,
    Observers,
    WorkerStuck,
)
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack, Outcome
from taskharbor.policy import decide
from taskharbor.policy.retry import RetryPolicy
from taskharbor.policy.suspects import alone_from
from taskharbor.tasks.context import JobContext, report_early_end
from taskharbor.tasks.flow_metadata import JOIN_TYPE
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.options import PROCESS_KEY
from taskharbor.worker.child_processes import ChildProcesses
from taskharbor.worker.deadlines import Deadlines
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import SHUTDOWN, TIMEOUT, Delivery
from taskharbor.worker.loop_event import LoopEvent
from taskharbor.worker.middleware import CallMiddleware, Middleware, await_within, call_within, wrap
from taskharbor.worker.outcomes import OutcomeBuilder
from taskharbor.worker.result_binder import Unbindable
from taskharbor.worker.settings import WorkerSettings
from taskharbor.worker.settler import UNKNOWN_TYPE
from taskharbor.worker.stop_budget import leave_behind
from taskharbor.worker.threads import Threads, unwrap
from taskharbor.worker.transaction import HandlerTransaction

UNKNOWN_TYPE_DELAY = 10.0  # seconds, plus up to a half: another worker may know the type
UNREAD_DELAY = 1.0  # seconds, plus up to a half: the results of what came before could not be read
CANCEL_GRACE = 5.0  # seconds until a cancelled coroutine is decided without it, and a decided one counts as stuck
ENDING_GRACE = 2.0  # seconds; how long a stop waits for a transaction to end, once no handler is waited for
NOTHING: Mapping[str, Exception] = {}
NOBODY = JobContext(JobRecord(id="nobody", type="nobody"))  # in place of a context that the handler does not take


class Executor:
    """Runs jobs in the worker's slots. Everything here happens on the worker's loop."""

    def __init__(
        self,
        *,
        settings: WorkerSettings,
        handlers: HandlerRegistry,
        middleware: Sequence[Middleware],
        call_middleware: Sequence[CallMiddleware] = (),
        retry: RetryPolicy,
        clock: Clock,
        observers: Observers,
        held: dict[str, Delivery],
        submit: Callable[[Delivery, Outcome], None],
        transactions: SqlDriver | None = None,
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._middleware = tuple(middleware)
        self._call_middleware = tuple(call_middleware)
        self._is_bare = not (self._middleware or self._call_middleware)  # a handler is called with nothing around it
        self._clock = clock
        self._observers = observers
        self._held = held
        self.decider = Decider(
            worker=settings.name,
            endings=OutcomeBuilder(settings=settings, retry=retry, clock=clock, observers=observers),
            clock=clock,
            observers=observers,
            held=held,
            submit=submit,
            on_settled=self.on_settled,
        )
        self._transactions = transactions
        self.running: dict[Delivery, None] = {}  # what takes a slot, in the order of starting
        self.deadlines = Deadlines(clock, self.running, self._on_due)
        self._threads = Threads("taskharbor-job")
        self._children = ChildProcesses(self._threads)
        self.stuck = 0  # of those running: how many were decided without their handlers, which go on
        self._suspect: Delivery | None = None
        self._alone_from = alone_from(settings.max_lost)
        self._cautious = False
        self._stopping = False
        self.changed = LoopEvent()
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
        alone = self._alone_from
        suspects = not self._held and any(reserved.job.lost >= alone for reserved in batch)
        held, running, handler_of = self._held, self.running, self._handlers.get
        create_task, execute = self._create_task, self._execute
        # Told apart once, not for each job.
        plain = not (tells or self._stopping or unbound or suspects)
        for reserved in batch:
            job, lease = reserved.job, reserved.lease
            handler = handler_of(job.type)
            run = held[lease.token] = Delivery(job, lease, handler)
            try:
                if plain and handler is not None and job.lost < alone:
                    timeout = job.timeout or handler.timeout
                    if timeout is not None:
                        self._watch(run, timeout)
                    running[run] = None
                    run.task = create_task(execute(run, handler), name=job.id)
                    continue
                if tells:
                    self._observers.emit(JobReserved(job, self._settings.name))
                if self._stopping:
                    self.decider.give_back(run, SHUTDOWN)
                elif handler is None:
                    self._without_handler(run)
                elif unbound and (problem := unbound.get(lease.token)) is not None:
                    self._without_results(run, problem)
                elif job.lost >= alone:
                    self._take_suspect(run)
                elif suspects:
                    self.decider.give_back(run, "a suspect runs alone first")
                else:
                    self._launch(run, handler)
            except Exception as error:  # one record that cannot be handled must not stop the others, nor the worker
                self.decider.undecided(run, error)
                self._on_ended(run)
        if self._suspect is not None:
            self._launch_suspect()

    def _without_handler(self, run: Delivery) -> None:
        if run.job.type == JOIN_TYPE:
            self.decider.decide(run, Ack(run.lease))
        else:
            self._give_back_for(run, UNKNOWN_TYPE, UNKNOWN_TYPE_DELAY)

    def _without_results(self, run: Delivery, problem: Exception) -> None:
        if isinstance(problem, Unbindable):
            self.decider.decide(run, self.decider.endings.failed(run, problem.refusal))
        else:
            self._give_back_for(run, "the results that it waits for could not be read", UNREAD_DELAY)

    def _give_back_for(self, run: Delivery, why: str, seconds: float) -> None:
        delay = timedelta(seconds=seconds * (1 + random.random() / 2))
        self.decider.give_back(run, why, decide.after(self._clock.now(), delay))

    # Suspects ------------------------------------------------------------------------------------------------

    def _take_suspect(self, run: Delivery) -> None:
        self._cautious = True
        if run.job.lost >= self._settings.max_lost:
            self.decider.decide(
                run, self.decider.endings.final(run, decide.crashed(run.job, run.lease, self._clock.now()))
            )
        elif self._suspect is None:
            self._suspect = run
        else:
            # Holding it while the other runs would blame it, too, if that one takes the process down.
            self.decider.give_back(run, "another suspect runs alone first")

    def _launch_suspect(self) -> None:
        """Once nothing else is held: an outcome still on its way would be lost with the process, and its job blamed."""
        suspect = self._suspect
        if suspect is not None and suspect.task is None and all(run is suspect for run in self._held.values()):
            assert suspect.handler is not None
            self._launch(suspect, suspect.handler)

    def on_settled(self) -> None:
        """The settler has written, or given up, what it had."""
        if self._suspect is not None:
            self._look_at_suspect()
        self.changed.set()

    def _look_at_suspect(self) -> None:
        """Something is held no longer: it may be the suspect's turn, or its place may be free again.

        Not before its outcome is stored: the next job might take the process down, and the suspect would be blamed. And
        not later: a function past its timeout may go on for ever, and must not keep every other slot from working.
        """
        if self._suspect is not None and self._suspect.lease.token not in self._held:
            self._suspect = None
        else:
            self._launch_suspect()

    # Running -------------------------------------------------------------------------------------------------

    def _launch(self, run: Delivery, handler: Handler) -> None:
        timeout = run.job.timeout or handler.timeout
        if timeout is not None:
            self._watch(run, timeout)
        self.running[run] = None
        run.task = self._create_task(self._execute(run, handler), name=run.job.id)

    def _watch(self, run: Delivery, timeout: timedelta) -> None:
        run.deadline = self._clock.now() + timeout
        run.due = self._monotonic() + timeout.total_seconds()
        self.deadlines.watch(run.due)

    async def _execute(self, run: Delivery, handler: Handler) -> None:
        """One job from the call of its handler to its outcome. The first branch is the hot path: no step too many.

        Whatever is raised, and wherever: the job gets an outcome and leaves its slot.
        """
        # What is kept in an attribute and called is read first: CPython finds a call of it as a method slowly.
        monotonic, decider, bind = self._monotonic, self.decider, handler.bind
        run.began = monotonic()
        run.started = True
        if run.due is not None and (timeout := run.job.timeout or handler.timeout) is not None:
            self._watch(run, timeout)  # its time begins here: others may have kept the loop busy since its launch
        try:
            if run.stop_reason:  # it was interrupted between its launch and this first step
                return decider.raised(run, asyncio.CancelledError())
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
                run.ending = run.transaction is not None
                decider.raised(run, unwrap(error))
                if run.transaction is not None:
                    await decider.undo(run, run.transaction)
            else:
                if run.context is not None:
                    report_early_end(run.context)
                if value is None and not (run.transaction or run.decided or run.stop_reason):  # the most common ending
                    if self._tells_success:
                        run.seconds = monotonic() - run.began
                    run.decided = True
                    submit = decider.submit
                    submit(run, Ack(run.lease))
                else:
                    run.seconds = monotonic() - run.began
                    if run.transaction is None:
                        decider.returned(run, value)
                    else:
                        await decider.commit(run, run.transaction, value)
        except BaseException as error:
            run.ending = run.transaction is not None
            decider.undecided(run, error)
            if run.transaction is not None:
                await decider.undo(run, run.transaction)
        finally:
            self._on_ended(run)

    def _context(self, run: Delivery) -> JobContext:
        begin = None if self._transactions is None else partial(self._begin, run)
        context = run.context = JobContext(run.job, self._settings.name, run.deadline, self._on_progress, begin)
        return context

    async def _invoke(self, run: Delivery, handler: Handler, context: JobContext) -> Any:
        if run.stop_reason:
            raise asyncio.CancelledError  # middleware was told to stop, and goes on: the handler is not called
        wanted = run.job.metadata.get(PROCESS_KEY)
        if handler.process if wanted is None else wanted == "1":
            try:
                return await self._children.run(run, handler, context, self._call_middleware)
            finally:
                run.kill = None  # what middleware does from here on can only be cancelled
        args, kwargs = handler.bind(run.job.payload, context)
        call = partial(handler.function, *args, **kwargs)
        if handler.is_coroutine:
            return await (await_within(self._call_middleware, context, call) if self._call_middleware else call())
        if self._call_middleware:
            call = partial(call_within, self._call_middleware, context, call)
        value: Any = None
        raised: BaseException | None = None
        run.in_thread = True
        try:
            value = await self._threads.run(call)
        except asyncio.CancelledError:  # not by us: middleware gives the function up, which goes on
            run.left_behind = True
            raise
        except Exception as error:
            # Middleware sees what was raised; only a StopIteration stays wrapped, which no coroutine may raise.
            raised = unwrap(error)
            if issubclass(type(raised), StopIteration):
                raised = error
        finally:
            run.in_thread = False
        if run.stop_reason:
            raise asyncio.CancelledError  # it is decided: middleware is told as it would be around a coroutine
        if raised is not None:
            raise raised
        return value

    # Transactions --------------------------------------------------------------------------------------------

    def _begin(self, run: Delivery) -> Any:
        if run.transaction is not None:
            raise RuntimeError("ctx.transaction() was called before: a job has one transaction, which ends with it")
        assert self._transactions is not None
        assert run.handler is not None
        held = HandlerTransaction.begin(self._transactions, run.lease, run.handler.is_coroutine, self._threads)
        run.transaction = held
        # Looked at after it was noted: this is the handler's thread, and what is decided meanwhile ends what is noted.
        if run.decided or run.left_behind or run not in self.running:
            raise RuntimeError("ctx.transaction() was called after its job had ended")
        return held.given

    def _on_ended(self, run: Delivery) -> None:
        self.running.pop(run, None)
        if run.stuck:
            self._on_freed(run)
        if not self.changed.is_set:
            self.changed.set()

    # From outside --------------------------------------------------------------------------------------------

    def _on_due(self, run: Delivery, now: float) -> None:
        """A timeout. A coroutine is cancelled and may clean up for a moment; a thread can only be told.

        A handler whose transaction is being ended has met its timeout: that is given a moment as well, and left alone.
        """
        if not run.started:
            return  # its time begins in this turn of the loop
        if run.decided and not run.ending:
            self._on_stuck(run)
            return
        first, run.stop_reason = run.stop_reason != TIMEOUT, TIMEOUT
        if run.ending:
            run.due = now + CANCEL_GRACE if first else None
            if not first:
                self.decider.give_up_ending(run)
                self._on_stuck(run)
            return
        run.due = now + CANCEL_GRACE
        if first:
            run.tell_to_stop(TIMEOUT)
            if run.kill is not None or not run.in_thread:
                run.interrupt()
                return
        run.seconds = self._clock.monotonic() - run.began
        self.decider.decide_without(run, self.decider.endings.timed_out(run), "it timed out")
        if not first:
            run.interrupt()  # it did not end when it was cancelled; perhaps now

    def lose(self, run: Delivery, error: TaskHarborError) -> None:
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
        run.due = self._monotonic() + CANCEL_GRACE
        self.deadlines.watch(run.due)
        run.stop_reason = reason
        self._held.pop(run.lease.token, None)
        run.tell_to_stop(reason)
        self.decider.abort(run, "it was cancelled" if cancelled else "its lease was lost")
        run.interrupt()
        self.on_settled()

    def _on_stuck(self, run: Delivery) -> None:
        """It was decided without its handler, which has been told to stop for a while, and goes on."""
        run.due = None
        if run.stuck:
            return
        run.stuck = True
        self.stuck += 1
        slots = self._settings.concurrency
        self._observers.emit(HandlerStuck(run.job, self._settings.name, run.stop_reason, self.stuck, slots))
        if self.stuck == slots:
            self._observers.emit(WorkerStuck(self._settings.name, slots))

    def _on_freed(self, run: Delivery) -> None:
        self.stuck -= 1
        self._observers.emit(HandlerFreed(run.job, self._settings.name, self._monotonic() - run.began, self.stuck))

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
            self.decider.give_back(suspect, SHUTDOWN)
        for run in self.running:
            run.tell_to_stop(SHUTDOWN)
        await self._wait_until_decided(self._clock.sleep(self._settings.shutdown_timeout), hurry.wait())
        for run in self._undecided():
            run.stop_reason = SHUTDOWN
            run.interrupt()
            if run.in_thread:
                self.decider.take_back(run)
        await self._wait_until_decided(asyncio.sleep(1.0))
        for run in self._undecided():
            self.decider.take_back(run)
        await self._wait_until_decided(asyncio.sleep(ENDING_GRACE))
        for run in self._ending():
            self.decider.give_up_ending(run)
        await self.deadlines.stop()
        self._children.close()
        self._threads.close()
        for run in self.running:
            run.stop_reason = run.stop_reason or SHUTDOWN
            self._on_stuck(run)
            run.stuck = False  # the slots are gone with their worker: nobody is told when it ends
        leave_behind(run.task for run in self.running if run.task is not None and run.task.cancelling())

    def _undecided(self) -> list[Delivery]:
        return [run for run in self.running if not run.decided]

    def _ending(self) -> list[Delivery]:
        return [run for run in self.running if run.ending]

    async def _wait_until_decided(self, *limits: Any) -> None:
        """Wait until every running job is decided and its transaction has ended, or one of the limits is over."""
        over = [asyncio.ensure_future(limit) for limit in limits]
        try:
            while (self._undecided() or self._ending()) and not any(limit.done() for limit in over):
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
