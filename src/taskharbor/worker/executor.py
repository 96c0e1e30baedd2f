"""The executor: runs handlers and turns how they end into outcomes. It touches no storage.

    start ─► unknown type: given back          ─► lost too often: dead          ─► suspect: waits to run alone
          ├► a workflow's join: done, there is nothing to run; a scheduled workflow: its jobs take its place
          └► launch ─► a task of its own: call the handler (`invocation`) ─► decide (`decider`) ─► outcome queue

Its parts: `capacity` (what occupies the slots), `suspects` (which job runs alone), `invocation` (how a handler is
called), `interrupts` (timeouts, lost leases), `decider` (one outcome for each delivery).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from taskharbor.model.current_job import CURRENT, is_wanted, note_handler_tasks
from taskharbor.model.errors import LeaseExpired
from taskharbor.model.events import JobReserved, JobStarted
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack
from taskharbor.model.refusal import Refusal
from taskharbor.model.scarcity import REMEDY
from taskharbor.policy import decide
from taskharbor.tasks.context import report_early_end
from taskharbor.tasks.flow_metadata import JOIN_TYPE, LAUNCH_TYPE
from taskharbor.tasks.handler import Handler
from taskharbor.worker.capacity import Capacity, SuspectGate
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import SHUTDOWN, UNKNOWN_TYPE, Delivery
from taskharbor.worker.interrupts import Interrupts
from taskharbor.worker.invocation import Invocation, Unread
from taskharbor.worker.losses import Losses
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.result_binder import Unready
from taskharbor.worker.threads import Scarce, unwrap
from taskharbor.worker.waiting import first_of, hidden, leave_behind

UNKNOWN_TYPE_DELAY_S = 10.0  # plus up to a half: another worker may know the type
UNREAD_RESULTS_DELAY_S = 1.0  # plus up to a half
SCARCE_DELAY_S = 1.0  # plus up to a half, of a job for which the system has no thread or process
SCARCE_WARNING_S = 60.0  # between two warnings about that
MAX_UNREAD_DOUBLINGS = 6  # of that delay, while they cannot be read, or a job before it is not done
INTERRUPT_GRACE_S = 1.0  # at a stop, for interrupted handlers to end before they are given back without them
ENDING_GRACE_S = 2.0  # at a stop, for transactions to end once no handler is waited for
logger = logging.getLogger("taskharbor.worker")
NO_PROBLEMS: Mapping[str, Exception] = {}


class Executor(Part):
    """Runs the jobs that the fetcher reserved. Everything here happens on the worker's loop."""

    def __init__(self, parts: WorkerParts, losses: Losses, *, knows_leases: bool = True) -> None:
        """`knows_leases`: the leases of deliveries are up to date here. A supervisor renews them elsewhere."""
        super().__init__(parts)
        self._monotonic = parts.clock.monotonic
        self.capacity = Capacity(parts)
        self.decider = Decider(parts, losses, self.on_settled)
        self.interrupts = Interrupts(parts, self.capacity, self.decider, losses)
        self._invocation = Invocation(parts, self.capacity.running, self.interrupts.lose)
        self._suspects = SuspectGate(parts, self.decider, self._launch_later)
        self._stopping = False
        self._warns_at = float("-inf")  # when to report again that something of the system is used up
        self._most: int | None = None  # how many may run while that is so
        self._scarcity: asyncio.Task[None] | None = None  # its end
        self._emits_started = True  # whether anyone observes JobStarted; asked for each batch
        self._notes_current = True  # whether anyone asks which job is running; asked for each batch
        self._create_task = _task_maker(asyncio.get_running_loop())
        self._latest_start_s = parts.settings.lease.total_seconds() if knows_leases else float("inf")

    def room(self) -> int:
        """How many jobs may be taken now."""
        if self._suspects.is_occupied or self._stopping:
            return 0
        free = self.capacity.free()
        if self._most is not None:
            free = min(free, max(self._most - len(self.capacity.running), 0))
        return min(free, 1) if self._suspects.cautious else free

    def on_settled(self) -> None:
        """Outcomes were written, or given up: their deliveries are no longer held."""
        if self._suspects.is_occupied:
            self._suspects.on_settled()
        self.capacity.changed.set()

    # Starting ------------------------------------------------------------------------------------------------

    def start(self, batch: Sequence[Reserved], unbound: Mapping[str, Exception] = NO_PROBLEMS) -> None:
        """Take charge of reserved jobs: run each, or decide its outcome at once.

        `unbound`: why a job, by the token of its lease, could not be given the results that it waits for.
        """
        emits_reserved = self._observers.wants(JobReserved)
        self._emits_started = self._observers.wants(JobStarted)
        self._notes_current = is_wanted()
        suspects = self._suspects
        suspects.cautious = False
        alone_from = suspects.alone_from
        # An idle worker that finds a suspect runs it at once, and gives back what came with it. Waiting beside the
        # suspect, those jobs would be blamed for its crash. Run before it, one might crash, and the suspect be blamed.
        only_suspects = not self._held and any(reserved.job.lost >= alone_from for reserved in batch)
        skips_admission = not (emits_reserved or self._stopping or unbound or only_suspects)  # once, not for each job
        held, handler_of, running = self._held, self._handlers.get, self.capacity.running
        create_task, execute = self._create_task, self._execute
        # All leases of a batch end together. If they have ended by now, `_execute` looks at each of them.
        is_late = batch and batch[0].lease.expires_at <= self._clock.now()
        taken = float("-inf") if is_late else self._monotonic()
        for reserved in batch:
            job, lease = reserved.job, reserved.lease
            handler = handler_of(job.type)
            delivery = held[lease.token] = Delivery(job, lease, handler, reserved.lost_by)
            delivery.began = taken
            try:
                if skips_admission and handler is not None and job.lost < alone_from:
                    timeout = job.timeout or handler.timeout  # as `_launch` does: the call is 0.5 % of a job on memory
                    if timeout is not None:
                        self.interrupts.watch(delivery, timeout)
                    running[delivery] = None
                    delivery.task = create_task(execute(delivery, handler), job.id)
                else:
                    if emits_reserved:
                        self._observers.emit(JobReserved(job, self._worker))
                    self._admit(delivery, unbound.get(lease.token), only_suspects)
            except Exception as error:  # one record that cannot be handled must not stop the others, nor the worker
                self.decider.undecided(delivery, error)
                self.capacity.leave(delivery)
        if suspects.is_occupied:
            suspects.launch_if_alone()

    def _admit(self, delivery: Delivery, problem: Exception | None, only_suspects: bool) -> None:
        """Launch a delivery, or decide it if it cannot or must not run here now."""
        if self._stopping:
            self.decider.give_back(delivery, SHUTDOWN)
        elif delivery.handler is None:
            self._without_handler(delivery)
        elif problem is not None:
            self._without_results(delivery, problem)
        elif self._suspects.is_suspect(delivery.job):
            self._suspects.admit(delivery)
        elif only_suspects:
            self.decider.give_back(delivery, "a suspect runs alone first")
        else:
            self._launch(delivery, delivery.handler)

    def _without_handler(self, delivery: Delivery) -> None:
        if delivery.job.type == JOIN_TYPE:
            self.decider.decide(delivery, Ack(delivery.lease))
        elif delivery.job.type == LAUNCH_TYPE:
            self.decider.launch(delivery)
        else:
            self._give_back_for(delivery, UNKNOWN_TYPE, UNKNOWN_TYPE_DELAY_S)

    def _without_results(self, delivery: Delivery, problem: Exception) -> None:
        if isinstance(problem, Refusal):
            self.decider.refuse(delivery, problem)
            return
        why = str(problem) if isinstance(problem, Unready) else "the results that it waits for could not be read"
        waits = delivery.job.deliveries - delivery.job.attempts - 1  # about as often as it was given back
        delay = UNREAD_RESULTS_DELAY_S * 2.0 ** min(max(waits, 0), MAX_UNREAD_DOUBLINGS)
        self._give_back_for(delivery, why, delay)

    def _give_back_for(self, delivery: Delivery, why: str, seconds: float) -> None:
        delay = timedelta(seconds=seconds * (1 + random.random() / 2))
        self.decider.give_back(delivery, why, decide.after(self._clock.now(), delay))

    # Running -------------------------------------------------------------------------------------------------

    def _launch(self, delivery: Delivery, handler: Handler) -> None:
        timeout = delivery.job.timeout or handler.timeout
        if timeout is not None:
            self.interrupts.watch(delivery, timeout)
        self.capacity.running[delivery] = None
        create_task = self._create_task  # read first: CPython is slow to call what an attribute holds as a method
        delivery.task = create_task(self._execute(delivery, handler), delivery.job.id)

    def _launch_later(self, delivery: Delivery, handler: Handler) -> None:
        """Launch a suspect that has waited until it was alone; the heart has kept its lease meanwhile."""
        delivery.began = self._monotonic()
        self._launch(delivery, handler)

    async def _execute(self, delivery: Delivery, handler: Handler) -> None:
        """Run one job, from the call of its handler to its outcome.

        Whatever is raised, and wherever: the job gets an outcome and leaves its slot.
        """
        monotonic, decider = self._monotonic, self.decider
        began = monotonic()
        # If the process stood still between a reserve and the start of a handler, another worker may have the job.
        if began - delivery.began > self._latest_start_s and delivery.lease.expires_at <= self._clock.now():
            self.interrupts.lose(delivery, LeaseExpired("its lease ended before its handler was called"))
        delivery.began = began
        delivery.started = True
        if delivery.due is not None and (timeout := delivery.job.timeout or handler.timeout) is not None:
            self.interrupts.watch(delivery, timeout)  # its time begins here: others may have kept the loop busy
        try:
            if delivery.stop_reason:  # it was interrupted between its launch and this first step
                return decider.raised(delivery, asyncio.CancelledError())
            if self._notes_current:
                CURRENT.set(delivery.job)
            if self._emits_started:
                self._observers.emit(JobStarted(delivery.job, self._worker))
            try:
                value = await self._invocation.call(delivery, handler)
            except BaseException as error:
                delivery.seconds = monotonic() - delivery.began
                delivery.ending = delivery.transaction is not None
                error = unwrap(error)
                if type(error) is Scarce and not (delivery.ending or delivery.decided):
                    self._without_means(delivery, error)
                elif type(error) is Unread and not delivery.decided:
                    self._give_back_for(delivery, str(error), UNREAD_RESULTS_DELAY_S)
                else:
                    decider.raised(delivery, error)
                if delivery.transaction is not None:
                    await decider.undo(delivery, delivery.transaction)
            else:
                delivery.seconds = monotonic() - delivery.began
                if delivery.context is not None:
                    report_early_end(delivery.context)
                if delivery.transaction is None:
                    decider.returned(delivery, value)
                else:
                    await decider.commit(delivery, delivery.transaction, value)
        except BaseException as error:
            delivery.ending = delivery.transaction is not None
            decider.undecided(delivery, error)
            if delivery.transaction is not None:
                await decider.undo(delivery, delivery.transaction)
        finally:
            self.capacity.leave(delivery)

    def _without_means(self, delivery: Delivery, error: Scarce) -> None:
        """The system has no thread or process for a handler: its job waits a moment, and loses no attempt."""
        if self._monotonic() >= self._warns_at:
            self._warns_at = self._monotonic() + SCARCE_WARNING_S
            logger.warning("%s; jobs are given back until there is one: %s, or lower --concurrency", error, REMEDY)
        self._give_back_for(delivery, str(error), SCARCE_DELAY_S)
        # A backlog would be taken and given back without a pause. What runs has its thread: no more may run for now.
        self._most = len(self.capacity.running) - 1
        if self._scarcity is None and not self._stopping:
            self._scarcity = hidden(asyncio.create_task(self._end_scarcity(), name="taskharbor-scarcity"))

    async def _end_scarcity(self) -> None:
        await self._clock.sleep(SCARCE_DELAY_S)
        self._most = self._scarcity = None
        self.capacity.changed.set()

    def check(self) -> None:
        """Give back jobs whose task was cancelled before its first step, by a handler that cancels all tasks."""
        for delivery in [each for each in self.capacity.running if each.task is not None and each.task.done()]:
            self.decider.give_back(delivery, "its task was cancelled before it began")
            self.capacity.leave(delivery)

    # Stopping ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take no more jobs: what a reserve still returns is given back at once."""
        self._stopping = True
        if self._scarcity is not None:
            self._scarcity.cancel()

    async def stop(self, hurry: asyncio.Event) -> None:
        """Let what runs finish within the grace period, or until `hurry`; give the rest back at once."""
        self.close()
        self._suspects.give_back_waiting()
        capacity, decider = self.capacity, self.decider
        for delivery in capacity.running:
            delivery.tell_to_stop(SHUTDOWN)
        await self._wait_until_decided(self._clock.sleep(self._settings.shutdown_timeout), hurry.wait())
        for delivery in capacity.undecided():
            delivery.stop_reason = SHUTDOWN
            delivery.interrupt()
            if delivery.in_thread:
                decider.give_back_running(delivery)
        await self._wait_until_decided(asyncio.sleep(INTERRUPT_GRACE_S), or_closing=True)
        for delivery in capacity.undecided():
            decider.give_back_running(delivery)
        await self._wait_until_decided(asyncio.sleep(ENDING_GRACE_S))
        for delivery in capacity.ending():
            decider.give_up_ending(delivery)
        await self.interrupts.stop()
        await self._invocation.close(hurry)
        for delivery in capacity.running:
            delivery.stop_reason = delivery.stop_reason or SHUTDOWN
            capacity.mark_stuck(delivery)
            delivery.stuck = False  # the slots are gone with their worker: HandlerFreed would mean nothing
        tasks = [delivery.task for delivery in capacity.running if delivery.task is not None]
        leave_behind(task for task in tasks if task.cancelling())

    async def _wait_until_decided(self, *limits: Any, or_closing: bool = False) -> None:
        """Wait until every running job is decided and its transaction has ended, or one of the limits is over.
        `or_closing`: until its dependencies are closed as well, where the loop does that."""
        capacity, changed = self.capacity, self.capacity.changed
        over = [asyncio.ensure_future(limit) for limit in limits]
        try:
            while capacity.undecided() or capacity.ending() or (or_closing and capacity.closing()):
                if any(limit.done() for limit in over):
                    break
                changed.clear()
                await first_of(changed.wait(), *over)
        finally:
            for limit in over:  # not awaited: this may be a coroutine that is thrown away with its loop
                limit.cancel()


note_handler_tasks(Executor._execute)


def _task_maker(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]:
    """`loop.create_task`, given a coroutine and a name; without its wrapping, where the loop adds nothing to it.

    That saves 1,700 of the 70,000 instructions that a worker needs for a job on the memory store.
    """
    if loop.get_task_factory() is None and type(loop).create_task is asyncio.BaseEventLoop.create_task:
        new_task = asyncio.Task
        return lambda coroutine, name: new_task(coroutine, loop=loop, name=name)
    return lambda coroutine, name: loop.create_task(coroutine, name=name)
