"""The decider: one outcome for each run, handed to the settler, or committed with the handler's own transaction.

    returned, raised, timed out, given back ─► decided ─► settler
                                               └ a transaction: `ending`, then committed with the ack, or undone and
                                                 what is `pending` settled

A job may be decided while its handler goes on, in a thread that nobody can end. Its transaction is undone all the same:
on SQLite it would keep everybody from writing, and on any store its locks.

The first outcome stands. Once a transaction is being ended nothing interrupts that: neither a timeout nor a worker
that stops. They wait a moment; then what is known is settled, and whether a commit went through, the lease decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from taskharbor.model.clock import Clock
from taskharbor.model.errors import DriverError, InvalidJob, TaskHarborError, TransactionFailed
from taskharbor.model.events import JobSucceeded, Observers, OutcomeRefused
from taskharbor.model.naming import class_name
from taskharbor.model.outcome import Ack, Outcome
from taskharbor.model.refusal import Refusal
from taskharbor.policy import decide
from taskharbor.worker.delivery import SHUTDOWN, TIMEOUT, Delivery
from taskharbor.worker.outcomes import WORKFLOW_REFUSED, OutcomeBuilder
from taskharbor.worker.settler import tell_spawned
from taskharbor.worker.transaction import HandlerTransaction


class Decider:
    """Decides runs. `submit` takes outcomes to the settler; `on_settled` hears of those that went another way."""

    def __init__(
        self,
        *,
        worker: str,
        endings: OutcomeBuilder,
        clock: Clock,
        observers: Observers,
        held: dict[str, Delivery],
        submit: Callable[[Delivery, Outcome], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._worker = worker
        self.endings = endings
        self._clock = clock
        self._observers = observers
        self._held = held
        self.submit = submit
        self._on_settled = on_settled
        self._aborts: set[asyncio.Task[None]] = set()

    def decide(self, run: Delivery, outcome: Outcome) -> None:
        """This is its outcome. While its transaction is being undone it waits for that."""
        run.decided = True
        if run.ending:
            run.pending = outcome
        else:
            self.submit(run, outcome)

    def returned(self, run: Delivery, value: Any) -> None:
        """Its handler returned."""
        if not run.decided:
            timed_out = run.stop_reason == TIMEOUT
            self.decide(run, self.endings.timed_out(run) if timed_out else self.endings.returned(run, value))

    def raised(self, run: Delivery, error: BaseException) -> None:
        """Its handler raised."""
        if run.decided:
            return
        if run.stop_reason == TIMEOUT:
            self.decide(run, self.endings.timed_out(run, error))
        elif run.stop_reason == SHUTDOWN:
            self.give_back(run, SHUTDOWN)  # it was interrupted: whatever it raised on its way out is our doing
        else:
            self.decide(run, self.endings.failed(run, error))

    def give_back(self, run: Delivery, why: str, run_at: datetime | None = None) -> None:
        """Back to the queue, with nothing recorded."""
        run.why = why
        self.decide(run, decide.give_back(run.job, run.lease, run_at))

    def take_back(self, run: Delivery) -> None:
        """The same at the end of a stop, whatever its handler does."""
        run.why = SHUTDOWN
        self.decide_without(run, decide.give_back(run.job, run.lease), "its worker stops")

    def decide_without(self, run: Delivery, outcome: Outcome, why: str) -> None:
        """This is its outcome, and its handler still runs: settle it once the handler's transaction is undone."""
        run.ending = run.transaction is not None
        self.decide(run, outcome)
        self.abort(run, why)

    def undecided(self, run: Delivery, error: BaseException) -> None:
        """Something failed between the handler's end and its outcome. That ends the job, never its worker."""
        if run.decided:
            return
        try:
            outcome = self.endings.undecided(run, error)
        except BaseException:  # even that fails: then with as little as can be said
            outcome = decide.refuse(run.job, run.lease, "its outcome could not be decided", self._clock.now())
        self.decide(run, outcome)

    # Transactions --------------------------------------------------------------------------------------------

    async def commit(self, run: Delivery, transaction: HandlerTransaction, value: Any) -> None:
        """The handler's writes and the job's ack, together or not at all."""
        run.ending = True
        if run.decided or run.left_behind or run.stop_reason == TIMEOUT or not transaction.begun:
            self.returned(run, value)
            return await self.undo(run, transaction)
        outcome = self.endings.returned(run, value)
        if type(outcome) is not Ack:
            self.decide(run, outcome)
            return await self.undo(run, transaction)
        run.decided = True
        refused: TaskHarborError | None
        try:
            refused = await transaction.commit(outcome, self._clock.now())
        except BaseException as error:
            # Nobody knows whether it was committed, so it must not be acked apart from the writes: when the lease is
            # over the job is done, or it runs again.
            refused = DriverError(f"its transaction ended with {class_name(error)}")
        run.ending = False
        if isinstance(refused, InvalidJob) and outcome.spawn:  # rolled back, and it would be refused again
            return self.decide(run, self.endings.failed(run, Refusal(f"{WORKFLOW_REFUSED}: {refused}")))
        if isinstance(refused, TransactionFailed):  # rolled back, as if the handler's last statement had failed
            return self.decide(run, self.endings.failed(run, refused.__cause__ or refused))
        self._held.pop(run.lease.token, None)
        if refused is None:
            self._observers.emit(JobSucceeded(run.job, self._worker, run.seconds))
            tell_spawned(self._observers, outcome.spawn, self._worker)
        else:
            self._observers.emit(OutcomeRefused(run.job, self._worker, refused))
        return self._on_settled()

    async def undo(self, run: Delivery, transaction: HandlerTransaction) -> None:
        """Roll back, then settle what was decided: on SQLite nobody can write before that."""
        await (transaction.abort("middleware gave it up") if run.left_behind else transaction.rollback())
        self._settle_pending(run)

    def abort(self, run: Delivery, why: str) -> None:
        """Undo the transaction of a handler that still runs, if it has one, and settle what was decided."""
        if run.transaction is not None:
            task = asyncio.ensure_future(self._abort(run, run.transaction, why))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)

    async def _abort(self, run: Delivery, transaction: HandlerTransaction, why: str) -> None:
        await transaction.abort(why)
        self._settle_pending(run)
        self._on_settled()

    def give_up_ending(self, run: Delivery) -> None:
        """Its transaction does not end."""
        if run.pending is not None:
            return self._settle_pending(run)
        self._held.pop(run.lease.token, None)
        error = DriverError("its transaction has not ended in time; the job is done or runs again when its lease ends")
        self._observers.emit(OutcomeRefused(run.job, self._worker, error))
        return self._on_settled()

    def _settle_pending(self, run: Delivery) -> None:
        run.ending = False
        if run.pending is not None:
            outcome, run.pending = run.pending, None
            self.submit(run, outcome)
