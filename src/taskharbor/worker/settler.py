"""The settler: writes outcomes to the store, many at a time.

It flushes at once when idle; while a flush is under way outcomes gather and go in the next one. When too many
have gathered (`behind`) the fetcher takes no more. A flush that fails is repeated until it succeeds or the
leases end: an outcome is safe to send twice, and nothing is ever settled in two steps. An outcome that the store cannot
take at this moment (its job is locked by an open transaction) is tried apart, and the others go on. Only a worker that
has to end gives up sooner: what a store does not take then is thrown away, and its job runs again when its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from taskharbor.drivers.contract import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable, DriverError, InvalidJob, LeaseExpired, TaskHarborError
from taskharbor.model.events import (
    Event,
    JobCancelled,
    JobDeadLettered,
    JobEnqueued,
    JobFailed,
    JobGivenBack,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    JobUnknown,
    Observers,
    OutcomeRefused,
)
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome, Retry
from taskharbor.model.refusal import Refusal
from taskharbor.policy.decide import refuse
from taskharbor.tasks.failure_step import with_failure_steps
from taskharbor.worker.delivery import Delivery
from taskharbor.worker.outage import Backoff, Outage
from taskharbor.worker.service import Service
from taskharbor.worker.stop_budget import StopBudget

logger = logging.getLogger("taskharbor.worker")

BATCH = 500
APART = 0.5  # seconds, at most, between two tries of an outcome that the store could not take
HELD_UP = 5  # tries of one outcome apart, within about a second, after which it is worth a line in the log
INDIGESTIBLE = 3  # tries of one outcome on which the driver fails by a bug of its own
UNKNOWN_TYPE = "unknown type"
NAMED = 20  # types that are named to somebody who looks for one
SNOOZED = "snoozed"


class Settler(Service):
    """Takes outcomes from the executor; `held` loses a run once its outcome is in the store, or refused."""

    def __init__(
        self,
        *,
        worker: str,
        driver: Driver,
        clock: Clock,
        outage: Outage,
        observers: Observers,
        held: dict[str, Delivery],
        bound: int,
        on_settled: Callable[[], None],
        on_put_off: Callable[[datetime], None],
        known: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        super().__init__()
        self._worker = worker
        self._driver = driver
        self._clock = clock
        self._outage = outage
        self._observers = observers
        self._held = held
        self._bound = bound
        self._enough = bound * 3 // 4
        self._on_settled = on_settled
        self._on_put_off = on_put_off
        self._known = known  # the types that this worker has handlers for
        self._pending: list[tuple[Delivery, Outcome]] = []
        self._flushing: list[tuple[Delivery, Outcome]] = []  # what was last taken from it
        self._apart: dict[asyncio.Task[None], tuple[Delivery, Outcome]] = {}  # retried one by one
        self._wanted = asyncio.Event()

    def submit(self, run: Delivery, outcome: Outcome) -> None:
        """Queue an outcome. Call it on the worker's loop."""
        self._pending.append((run, outcome))
        if len(self._pending) == 1:
            self._wanted.set()

    @property
    def behind(self) -> bool:
        """Whether so many outcomes wait that no more jobs should be taken."""
        return len(self._pending) >= self._bound

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self._wanted.set()

    async def run(self) -> None:
        while self._pending or self._apart or not self.stopping:
            if not self._pending:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            await self._gather()
            batch = self._flushing = self._pending[:BATCH]
            del self._pending[:BATCH]
            await self._flush(batch)

    async def end(self, patience: StopBudget, share: float = 1.0) -> bool:
        """Write what is left, and end; when the store takes too long, throw it away and say so."""
        if await super().end(patience, share):
            return True
        error = BackendUnavailable("the store did not record it before the worker had to end")
        for task in self._apart:
            task.cancel()
        for run, outcome in [*self._flushing, *self._pending, *self._apart.values()]:
            if run.lease.token in self._held:
                self._refused(run, outcome, error)
        return False

    async def _gather(self) -> None:
        """While every turn of the loop brings more outcomes, let them come: they share what one call costs."""
        seen = 0
        while seen < len(self._pending) < self._enough:
            seen = len(self._pending)
            await asyncio.sleep(0)

    async def _flush(self, batch: list[tuple[Delivery, Outcome]]) -> None:
        backoff, tries = Backoff(), 0
        while batch:
            try:
                answers = await self._driver.settle([outcome for _, outcome in batch], self._clock.now())
                if len(answers) != len(batch):
                    raise RuntimeError(f"the driver answered {len(answers)} of {len(batch)} outcomes")
            except (BackendUnavailable, OSError) as error:
                self._outage.failed("settle", error)
            except Exception as error:
                self._outage.failed("settle", error)
                if len(batch) > 1:
                    # A driver that chokes on one outcome must not hold up the others: find it by trying each alone.
                    for each in batch:
                        await self._flush([each])
                    return
                tries += 1
                if tries == INDIGESTIBLE:
                    self._refused(*batch[0], DriverError(f"the driver cannot settle it: {type(error).__name__}"))
                    return
            else:
                self._outage.answered("settle")
                for run, outcome, reason in self._close(batch, answers):
                    self._set_apart(run, outcome, reason)
                return
            await asyncio.sleep(backoff.next())
            batch = self._still_held(batch)

    def _set_apart(self, run: Delivery, outcome: Outcome, reason: TaskHarborError) -> None:
        task = asyncio.create_task(self._try_apart(run, outcome, reason), name="taskharbor-settle-apart")
        self._apart[task] = run, outcome
        task.add_done_callback(self._tried_apart)

    def _tried_apart(self, task: asyncio.Task[None]) -> None:
        self._apart.pop(task, None)
        self._wanted.set()

    async def _try_apart(self, run: Delivery, outcome: Outcome, reason: TaskHarborError) -> None:
        """Try one outcome again that the store could not take, until it does or the lease is over."""
        backoff, tries = Backoff(), 0
        while True:
            tries += 1
            if tries == HELD_UP:
                logger.warning("the outcome of job %s waits: %s", run.job.id, reason)
            await asyncio.sleep(min(backoff.next(), APART))
            if not self._still_held([(run, outcome)]):
                return
            try:
                answers = await self._driver.settle([outcome], self._clock.now())
            except Exception:
                self.submit(run, outcome)  # what has happened to the store is told by the others
                return
            left = self._close([(run, outcome)], answers)
            if not left:
                return
            reason = left[0][2]

    def _still_held(self, batch: list[tuple[Delivery, Outcome]]) -> list[tuple[Delivery, Outcome]]:
        """What is worth another try: outcomes whose lease is still valid. The rest is run again by somebody."""
        now = self._clock.now()
        kept = []
        for run, outcome in batch:
            if run.lease.expires_at > now:
                kept.append((run, outcome))
            else:
                self._refused(
                    run, outcome, LeaseExpired(f"job {run.job.id}: the lease ended before the store answered")
                )
        return kept

    def _close(
        self, batch: list[tuple[Delivery, Outcome]], answers: list[TaskHarborError | None]
    ) -> list[tuple[Delivery, Outcome, TaskHarborError]]:
        """Tell what became of outcomes; those that the store could not take for now are answered."""
        left: list[tuple[Delivery, Outcome, TaskHarborError]] = []
        held = self._held
        tells_success = self._observers.hears(JobSucceeded)
        for (run, outcome), answer in zip(batch, answers, strict=True):
            if answer is not None:
                if isinstance(answer, BackendUnavailable):
                    left.append((run, outcome, answer))
                else:
                    self._refused(run, outcome, answer)
                continue
            held.pop(run.lease.token, None)
            if type(outcome) is Ack:
                if tells_success:
                    self._observers.emit(JobSucceeded(run.job, self._worker, self._seconds(run)))
            else:
                self._observers.emit(self._event(run, outcome))
                if type(outcome) is Retry:
                    self._note(run, outcome)
                if type(outcome) is not Fail:
                    continue
            if outcome.spawn:
                tell_spawned(self._observers, outcome.spawn, self._worker)
        self._on_settled()
        return left

    def _note(self, run: Delivery, outcome: Retry) -> None:
        """A job that was put off by its failure or by itself runs here again; any other is better left to others."""
        if outcome.run_at is not None and (outcome.attempts != run.job.attempts or run.why == SNOOZED):
            self._on_put_off(outcome.run_at)

    def _seconds(self, run: Delivery) -> float:
        """How long it ran. Nobody measured while nobody wanted to hear it: then, until its end was recorded."""
        return run.seconds or (self._clock.monotonic() - run.began if run.started else 0.0)

    def _refused(self, run: Delivery, outcome: Outcome, error: TaskHarborError) -> None:
        if isinstance(error, InvalidJob) and isinstance(outcome, Ack | Fail) and outcome.spawn:
            # The handler returned a workflow that cannot be stored. Nothing was: the job itself fails instead.
            now, reason = self._clock.now(), f"its workflow cannot be stored: {error}"
            failed = refuse(run.job, run.lease, reason, now)
            if isinstance(outcome, Ack) and run.handler is not None:
                self._observers.emit(JobFailed(run.job, self._worker, Refusal(reason), run.seconds))
                failed = with_failure_steps(run.job, failed, run.handler.signature.codec, now)
            elif isinstance(outcome, Fail):  # what it was to release cannot be stored: it dies without that
                failed = Fail(run.lease, outcome.reason, outcome.attempts, outcome.failed_at, outcome.last_error)
            self.submit(run, failed)
            return
        self._held.pop(run.lease.token, None)
        self._observers.emit(OutcomeRefused(run.job, self._worker, error))
        self._on_settled()

    def _event(self, run: Delivery, outcome: Outcome) -> Event:
        job, worker = run.job, self._worker
        if isinstance(outcome, Fail):
            return JobDeadLettered(job, worker, outcome.attempts, outcome.reason)
        if isinstance(outcome, Cancelled):
            return JobCancelled(job, worker, outcome.reason)
        if isinstance(outcome, Retry) and outcome.attempts != job.attempts:
            return JobRetried(job, worker, outcome.attempts, outcome.run_at)
        run_at = outcome.run_at if isinstance(outcome, Retry) else None
        if run.why == UNKNOWN_TYPE:
            return JobUnknown(job, worker, self._known()[:NAMED])
        if run.why == SNOOZED:
            return JobSnoozed(job, worker, run_at)
        return JobGivenBack(job, worker, run.why, run_at)


def tell_spawned(observers: Observers, jobs: Sequence[JobRecord], worker: str) -> None:
    """Tell of jobs that an outcome has brought into being."""
    if observers.hears(JobEnqueued):
        for job in jobs:
            observers.emit(JobEnqueued(job, worker))
