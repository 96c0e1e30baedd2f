"""The settler: writes outcomes to the store, many at a time.

    outcome queue ─► batch ─► driver.settle ─► recorded: event, no longer held
                                           ├─► refused: event, no longer held; of a cancelled job the event says so
                                           ├─► "not now" (its record is locked): retried by itself, the others go on
                                           └─► the call failed: the whole batch again, until it succeeds or leases end

When idle it writes at once; while a call is under way outcomes gather, and go into the next one. Sending an outcome
twice is safe, and nothing is ever settled in two steps. Only a worker that has to end gives up sooner: what the store
has not recorded by then is thrown away, and its job runs again when its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from taskharbor.model import events
from taskharbor.model.errors import (
    BackendUnavailable,
    DriverError,
    InvalidJob,
    JobNotInflight,
    LeaseExpired,
    TaskHarborError,
)
from taskharbor.model.events import Event, JobSucceeded
from taskharbor.model.job import State
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.refusal import Refusal
from taskharbor.worker.decider import Decider
from taskharbor.worker.delivery import SNOOZED, UNKNOWN_TYPE, Decided, Delivery
from taskharbor.worker.outage import Backoff
from taskharbor.worker.outcomes import WORKFLOW_REFUSED
from taskharbor.worker.parts import Part, WorkerParts
from taskharbor.worker.service import Service
from taskharbor.worker.waiting import StopBudget, hidden

logger = logging.getLogger("taskharbor.worker")

MAX_BATCH_OUTCOMES = 500
MAX_RETRY_DELAY_S = 0.5  # between two tries of one outcome that the store could not take
WARN_AFTER_TRIES = 5  # of such an outcome: about a second
MAX_KNOWN_TYPES = 20  # how many of its types a worker names beside one that it does not know
MAX_FAULTY_TRIES = 3  # of one outcome on which the driver itself fails, by a bug of its own


class Settler(Part, Service):
    """Writes what is in the outcome queue; `held` loses a delivery once its outcome is recorded or refused."""

    def __init__(self, parts: WorkerParts, decider: Decider, on_put_off: Callable[[datetime, bool], None]) -> None:
        """`on_put_off` is called with the time at which a job is due again, and whether it can run here."""
        super().__init__(parts)
        self._decider = decider
        self._on_put_off = on_put_off
        self._flushing: list[Decided] = []  # the last batch that was taken from the queue
        self._retrying: dict[asyncio.Task[None], Decided] = {}  # outcomes that are retried by themselves

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self._outcomes.changed.set()

    async def run(self) -> None:
        outcomes = self._outcomes
        while outcomes.waiting or self._retrying or not self.stopping:
            if not outcomes.waiting:
                outcomes.changed.clear()
                await outcomes.changed.wait()
                continue
            seen = 0
            # While every turn of the loop brings more outcomes, wait for them: they share the cost of one call.
            while seen < len(outcomes.waiting) and not outcomes.is_nearly_full:
                seen = len(outcomes.waiting)
                await asyncio.sleep(0)
            batch = self._flushing = outcomes.take(MAX_BATCH_OUTCOMES)
            await self._flush(batch)

    async def end(self, budget: StopBudget, share: float = 1.0) -> bool:
        """Write what is left, and end; when the store takes too long, throw the rest away and report it."""
        if await super().end(budget, share):
            return True
        error = BackendUnavailable("the store did not record it before the worker had to end")
        for task in self._retrying:
            task.cancel()
        for delivery, outcome in [*self._flushing, *self._outcomes.waiting, *self._retrying.values()]:
            if delivery.lease.token in self._held:
                self._refused(delivery, outcome, error)
        return False

    async def _flush(self, batch: list[Decided]) -> None:
        backoff, tries = Backoff(), 0
        while batch:
            try:
                results = await self._driver.settle([outcome for _, outcome in batch], self._clock.now())
                if len(results) != len(batch):
                    raise RuntimeError(f"the driver returned {len(results)} results for {len(batch)} outcomes")
            except (BackendUnavailable, OSError) as error:
                self._outage.failed("settle", error)
            except Exception as error:
                self._outage.failed("settle", error)
                if len(batch) > 1:
                    # The driver fails on one outcome, which must not hold up the others: find it by trying each alone.
                    for each in batch:
                        await self._flush([each])
                    return
                tries += 1
                if tries == MAX_FAULTY_TRIES:
                    self._refused(*batch[0], DriverError(f"the driver cannot settle it: {type(error).__name__}"))
                    return
            else:
                self._outage.answered("settle")
                for delivery, outcome, reason in self._report(batch, results):
                    self._alone((delivery, outcome), self._retry(delivery, outcome, reason))
                return
            await asyncio.sleep(backoff.next())
            batch = self._with_valid_lease(batch)

    # One outcome that the store could not take ---------------------------------------------------------------

    def _alone(self, decided: Decided, work: Coroutine[Any, Any, None]) -> None:
        task = hidden(asyncio.create_task(work, name="taskharbor-settle-retry"))
        self._retrying[task] = decided
        task.add_done_callback(self._retried)

    def _retried(self, task: asyncio.Task[None]) -> None:
        self._retrying.pop(task, None)
        self._outcomes.changed.set()

    async def _retry(self, delivery: Delivery, outcome: Outcome, reason: TaskHarborError) -> None:
        """Try one outcome again until the store takes it or the lease has ended."""
        backoff, tries = Backoff(), 0
        while True:
            tries += 1
            if tries == WARN_AFTER_TRIES:
                logger.warning("the outcome of job %s waits: %s", delivery.job.id, reason)
            await asyncio.sleep(min(backoff.next(), MAX_RETRY_DELAY_S))
            if not self._with_valid_lease([(delivery, outcome)]):
                return
            try:
                results = await self._driver.settle([outcome], self._clock.now())
            except Exception:
                self._outcomes.submit(delivery, outcome)  # the next batch reports what is wrong with the store
                return
            left = self._report([(delivery, outcome)], results)
            if not left:
                return
            reason = left[0][2]

    def _with_valid_lease(self, batch: list[Decided]) -> list[Decided]:
        """The outcomes that are worth another try: those whose lease is valid. The jobs of the others run again."""
        now = self._clock.now()
        kept = []
        for delivery, outcome in batch:
            if delivery.lease.expires_at > now:
                kept.append((delivery, outcome))
            else:
                error = LeaseExpired(f"job {delivery.job.id}: the lease ended before the store answered")
                self._refused(delivery, outcome, error)
        return kept

    # What the store returned ---------------------------------------------------------------------------------

    def _report(
        self, batch: list[Decided], results: list[TaskHarborError | None]
    ) -> list[tuple[Delivery, Outcome, TaskHarborError]]:
        """Report recorded and refused outcomes; return those that the store could not take for now, and why."""
        left: list[tuple[Delivery, Outcome, TaskHarborError]] = []
        others: list[Decided] = []  # that are not an Ack
        held = self._held
        emits_success = self._observers.wants(JobSucceeded)
        for (delivery, outcome), refusal in zip(batch, results, strict=True):
            if refusal is not None:
                if isinstance(refusal, BackendUnavailable):
                    left.append((delivery, outcome, refusal))
                elif isinstance(refusal, JobNotInflight):
                    self._alone((delivery, outcome), self._taken_away(delivery, outcome, refusal))
                else:
                    self._refused(delivery, outcome, refusal)
                continue
            held.pop(delivery.lease.token, None)
            if type(outcome) is Ack:  # most jobs
                if emits_success:
                    self._observers.emit(JobSucceeded(delivery.job, self._worker, delivery.seconds))
                if outcome.spawn:
                    self._decider.spawned(outcome.spawn)
                continue
            others.append((delivery, outcome))
            self._observers.emit(self._event_of(delivery, outcome))
            if type(outcome) is Fail:
                self._decider.spawned(outcome.spawn)
            elif type(outcome) is Retry and outcome.run_at is not None:
                # A job that failed or snoozed here runs here again when it is due; any other is better left to others.
                again = outcome.attempts != delivery.job.attempts or delivery.why == SNOOZED
                self._on_put_off(outcome.run_at, again)
        if self._figures is not None:
            if any(results):  # exceptions are true
                recorded = [each for each, refusal in zip(batch, results, strict=True) if refusal is None]
            else:
                recorded = batch
            self._figures.add(recorded, others)
        self._decider.on_settled()
        return left

    def _event_of(self, delivery: Delivery, outcome: Outcome) -> Event:
        """The event for a recorded outcome that is not an Ack."""
        job, worker = delivery.job, self._worker
        if isinstance(outcome, Fail):
            return events.JobDeadLettered(job, worker, outcome.attempts, outcome.reason)
        if isinstance(outcome, Cancelled):
            return events.JobCancelled(job, worker, outcome.reason)
        assert isinstance(outcome, Retry)
        if outcome.attempts != job.attempts:
            return events.JobRetried(job, worker, outcome.attempts, outcome.run_at)
        if delivery.why == UNKNOWN_TYPE:
            return events.JobUnknown(job, worker, self._handlers.types()[:MAX_KNOWN_TYPES])
        if delivery.why == SNOOZED:
            return events.JobSnoozed(job, worker, outcome.run_at)
        return events.JobGivenBack(job, worker, delivery.why, outcome.run_at)

    async def _taken_away(self, delivery: Delivery, outcome: Outcome, refusal: TaskHarborError) -> None:
        """Report an outcome of a job that nobody holds: an ordinary one if it was cancelled, else a refused one."""
        try:
            is_cancelled = (await self._driver.inspect(delivery.job.id, self._clock.now())).state is State.CANCELLED
        except Exception:  # it is gone, or the store is away
            is_cancelled = False
        if is_cancelled:
            self._decider.cancelled(delivery)
        else:
            self._refused(delivery, outcome, refusal)

    def _refused(self, delivery: Delivery, outcome: Outcome, error: TaskHarborError) -> None:
        if not (isinstance(error, InvalidJob) and isinstance(outcome, Ack | Fail) and outcome.spawn):
            self._decider.refused(delivery, error)
        # The outcome brought a workflow that cannot be stored. Nothing was stored: the job itself fails instead.
        elif isinstance(outcome, Fail):  # its failure step cannot be stored: it dies without that
            self._outcomes.submit(delivery, replace(outcome, lease=delivery.lease, spawn=()))
        else:
            self._decider.refuse(delivery, Refusal(f"{WORKFLOW_REFUSED}: {error}"))
