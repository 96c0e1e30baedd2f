"""The decider: one outcome for each delivery, put into the outcome queue or committed with the handler's transaction.

    returned, raised, timed out, given back ─► decided ─► outcome queue ─► settler
                                               └ with a transaction: `ending`, then committed together with the ack, or
                                                 rolled back, and what is `pending` goes to the queue

A job may be decided while its handler goes on, in a thread that nothing can stop. Its transaction is rolled back all
the same: on SQLite it would block every other writer, and on any store it would keep its locks.

The first outcome stands. Once a transaction is being ended nothing interrupts that, neither a timeout nor a worker
that stops. They wait a moment; then what is known is settled. Whether an unfinished commit went through shows when the
lease ends: the job is done by then, or it runs again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError, TransactionFailed
from taskharbor.model.events import JobCancelled, JobEnqueued, JobSucceeded, OutcomeRefused
from taskharbor.model.job import JobRecord
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Ack, Outcome
from taskharbor.model.refusal import Refusal
from taskharbor.policy import decide
from taskharbor.policy.trail import OutcomeT, with_trail
from taskharbor.worker.delivery import CANCELLED_WHILE_RUNNING, SHUTDOWN, SNOOZED, TIMEOUT, Delivery
from taskharbor.worker.losses import Losses
from taskharbor.worker.outcomes import WORKFLOW_REFUSED, OutcomeBuilder, refusal
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.transaction import HandlerTransaction

NO_TRANSACTION, NO_TRANSACTION_S = "the store had no connection for its transaction", 1.0


class Decider(Part):
    """Decides deliveries. `on_settled` is called when deliveries are held no longer."""

    def __init__(self, parts: WorkerParts, losses: Losses, on_settled: Callable[[], None]) -> None:
        super().__init__(parts)
        self._builder = OutcomeBuilder(parts)
        self._losses = losses
        self.on_settled = on_settled
        self._aborts: set[asyncio.Task[None]] = set()  # asyncio itself keeps no reference to a task

    def decide(self, delivery: Delivery, outcome: Outcome) -> None:
        """Set the outcome of a delivery. While its transaction is being rolled back, the outcome waits for that.

        Every outcome goes through here, except an ack that is committed with a transaction, and the plain one of a
        handler that returned None.
        """
        delivery.decided = True
        if type(outcome) is not Ack or delivery.lost_by is not None:  # most jobs: neither
            outcome = self._with_trail(delivery, outcome)
        if delivery.ending:
            delivery.pending = outcome
        else:
            self._outcomes.submit(delivery, outcome)

    def _with_trail(self, delivery: Delivery, outcome: OutcomeT) -> OutcomeT:
        if delivery.lost_by is not None and self._figures is not None and not delivery.loss_counted:
            delivery.loss_counted = True  # it may be decided anew
            self._figures.lost(delivery.job.queue)
        return with_trail(
            delivery.job,
            outcome,
            self._clock.now(),
            lost_by=delivery.lost_by,
            timed_out=delivery.stop_reason == TIMEOUT,
            snoozed=delivery.why == SNOOZED,
            why=delivery.why,
        )

    def returned(self, delivery: Delivery, value: Any) -> None:
        """Its handler returned."""
        if delivery.decided:
            return
        if delivery.stop_reason == TIMEOUT:
            self.decide(delivery, self._builder.timed_out(delivery))
        elif value is None and delivery.lost_by is None and not delivery.ending:
            delivery.decided = True  # most jobs: what `decide` would do with it, without the call
            self._outcomes.submit(delivery, Ack(delivery.lease))
        else:
            self.decide(delivery, self._builder.returned(delivery, value))

    def raised(self, delivery: Delivery, error: BaseException) -> None:
        """Its handler raised."""
        if delivery.decided:
            return
        if delivery.stop_reason == TIMEOUT:
            self.decide(delivery, self._builder.timed_out(delivery, error))
        elif delivery.stop_reason == SHUTDOWN:
            self.give_back(delivery, SHUTDOWN)  # we interrupted it: what it raises on its way out is our doing
        elif delivery.transaction is not None and error is delivery.transaction.unavailable:
            pause = timedelta(seconds=NO_TRANSACTION_S * (1 + random.random()))
            self.give_back(delivery, NO_TRANSACTION, decide.after(self._clock.now(), pause))
        else:
            self.decide(delivery, self._builder.failed(delivery, error))

    def refuse(self, delivery: Delivery, reason: Refusal) -> None:
        """It cannot be run at all, here or anywhere."""
        self.decide(delivery, self._builder.failed(delivery, reason))

    def launch(self, delivery: Delivery) -> None:
        """Replace a launch job by the jobs of its workflow."""
        from taskharbor.tasks.workflow import launched  # when there is one

        try:
            spawned = launched(delivery.job, self._clock.now())
        except (ValueError, KeyError, RecursionError) as error:
            return self.refuse(delivery, Refusal(f"{WORKFLOW_REFUSED}: {class_name(error)}"))
        return self.decide(delivery, Ack(delivery.lease, None, spawned.jobs, spawned.handover))

    def crashed(self, delivery: Delivery, max_lost: int) -> None:
        """It was lost too often: it is dead, and its handler is not called again."""
        crashed = decide.crashed(delivery.job, delivery.lease, self._clock.now(), max_lost)
        self.decide(delivery, self._builder.final(delivery, crashed))

    def give_back(self, delivery: Delivery, why: str, run_at: datetime | None = None) -> None:
        """Return it to its queue with nothing recorded."""
        delivery.why = why
        self.decide(delivery, decide.give_back(delivery.job, delivery.lease, run_at))

    def give_back_running(self, delivery: Delivery) -> None:
        """Return it to its queue at the end of a stop, while its handler goes on."""
        delivery.why = SHUTDOWN
        self._decide_while_running(delivery, decide.give_back(delivery.job, delivery.lease), "its worker stops")

    def timed_out(self, delivery: Delivery) -> None:
        """It timed out, and its handler goes on."""
        self._decide_while_running(delivery, self._builder.timed_out(delivery), "it timed out")

    def undecided(self, delivery: Delivery, error: BaseException) -> None:
        """Something failed between the handler's end and its outcome. That ends the job, never its worker."""
        if delivery.decided:
            return
        try:
            outcome = self._builder.failed(delivery, refusal("its outcome could not be decided", error))
        except BaseException:  # even that fails: then say as little as possible
            reason = "its outcome could not be decided"
            outcome = decide.refuse(delivery.job, delivery.lease, reason, self._clock.now())
        self.decide(delivery, outcome)

    def _decide_while_running(self, delivery: Delivery, outcome: Outcome, why: str) -> None:
        """Decide without waiting for the handler: roll its transaction back first, then settle."""
        delivery.ending = delivery.transaction is not None
        self.decide(delivery, outcome)
        self.abort(delivery, why)

    # Transactions --------------------------------------------------------------------------------------------

    async def commit(self, delivery: Delivery, transaction: HandlerTransaction, value: Any) -> None:
        """Commit the handler's writes and the job's ack, together or not at all."""
        delivery.ending = True
        stopped = delivery.decided or delivery.left_behind or delivery.stop_reason == TIMEOUT
        if stopped or not transaction.begun:
            self.returned(delivery, value)
            return await self.undo(delivery, transaction)
        outcome = self._builder.returned(delivery, value)
        if type(outcome) is not Ack:
            self.decide(delivery, outcome)
            return await self.undo(delivery, transaction)
        delivery.decided = True
        if delivery.lost_by is not None:
            outcome = self._with_trail(delivery, outcome)
        refused: TaskHarborError | None
        try:
            refused = await transaction.commit(outcome, self._clock.now())
        except BaseException as error:
            # It may be committed or not, so it must not be acked apart from the writes: when the lease ends the job is
            # done, or it runs again.
            refused = DriverError(f"its transaction ended with {class_name(error)}")
        delivery.ending = False
        return self._committed(delivery, outcome, refused)

    def _committed(self, delivery: Delivery, ack: Ack, refused: TaskHarborError | None) -> None:
        if isinstance(refused, InvalidJob) and ack.spawn:  # rolled back, and it would be refused again
            return self.refuse(delivery, Refusal(f"{WORKFLOW_REFUSED}: {refused}"))
        if isinstance(refused, TransactionFailed):  # rolled back, as if the handler's last statement had failed
            return self.decide(delivery, self._builder.failed(delivery, refused.__cause__ or refused))
        if refused is not None:
            return self.refused(delivery, refused)
        self._held.pop(delivery.lease.token, None)
        if self._figures is not None:
            self._figures.add([(delivery, ack)])
        self._observers.emit(JobSucceeded(delivery.job, self._worker, delivery.seconds))
        self.spawned(ack.spawn)
        return self.on_settled()

    def spawned(self, jobs: Sequence[JobRecord]) -> None:
        """Report the jobs that an outcome has brought into being."""
        if self._observers.wants(JobEnqueued):
            for job in jobs:
                self._observers.emit(JobEnqueued(job, self._worker))

    async def undo(self, delivery: Delivery, transaction: HandlerTransaction) -> None:
        """Roll back, then settle what was decided: on SQLite nothing else can write before that."""
        if delivery.left_behind:
            await transaction.abort("middleware gave it up")
        else:
            await transaction.rollback()
        self._settle_pending(delivery)

    def abort(self, delivery: Delivery, why: str) -> None:
        """Roll back the transaction of a handler that is still running, if it has one; settle what was decided."""
        if delivery.transaction is not None:
            task = asyncio.ensure_future(self._abort(delivery, delivery.transaction, why))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)

    async def _abort(self, delivery: Delivery, transaction: HandlerTransaction, why: str) -> None:
        await transaction.abort(why)
        self._settle_pending(delivery)
        self.on_settled()

    def give_up_ending(self, delivery: Delivery) -> None:
        """Stop waiting for a transaction that does not end."""
        if delivery.pending is not None:
            return self._settle_pending(delivery)
        error = DriverError("its transaction has not ended in time; the job is done or runs again when its lease ends")
        return self.refused(delivery, error)

    def refused(self, delivery: Delivery, error: TaskHarborError) -> None:
        """Its outcome is not recorded: the store refused it, or did not answer in time."""
        self._held.pop(delivery.lease.token, None)
        self._losses.note(delivery)
        self._observers.emit(OutcomeRefused(delivery.job, self._worker, error))
        return self.on_settled()

    def cancelled(self, delivery: Delivery) -> None:
        """Its outcome is not recorded, because the job was cancelled meanwhile."""
        self._held.pop(delivery.lease.token, None)
        self._observers.emit(JobCancelled(delivery.job, self._worker, CANCELLED_WHILE_RUNNING))
        return self.on_settled()

    def _settle_pending(self, delivery: Delivery) -> None:
        delivery.ending = False
        if delivery.pending is not None:
            outcome, delivery.pending = delivery.pending, None
            self._outcomes.submit(delivery, outcome)
