"""Runs the slices of operations: reserve one, do it, settle it together with the next one.

Workers do this beside their jobs, and `op.run()` does it in a program without a worker. A slice has a lease like any
job: a runner that is killed loses it, and another one repeats the slice.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.errors import BackendUnavailable, JobNotFound, TaskHarborError
from taskharbor.model.events import JobDeadLettered, Observers, OperatorActed
from taskharbor.model.job import OPERATIONS_QUEUE, State
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack, Fail, Outcome, Retry
from taskharbor.policy import decide
from taskharbor.policy.retry import Exponential
from taskharbor.policy.trail import with_trail
from taskharbor.store.bulk.plan import (
    OPERATION_TYPE,
    OperationState,
    OperationStatus,
    ended_entry,
    read_state,
    slice_record,
    write_result,
)
from taskharbor.store.bulk.slices import OperationEnded, RunAgain, SliceStep, run_slice

SLICE_LEASE = timedelta(seconds=15)  # three times as long as a slice takes; one that takes longer is repeated
SLICE_RETRY = Exponential(base=1, maximum=60)
SLICE_MAX_LOST = 10  # of one slice: then something in it kills the worker
UNKNOWN_TYPE_PAUSE = timedelta(seconds=10)


class OperationRunner:
    """Runs slices with one driver, one at a time. `name` is how the store knows this worker."""

    def __init__(self, driver: Driver, clock: Clock, name: str, observers: Observers | None = None) -> None:
        self._driver = driver
        self._clock = clock
        self._name = name
        self._observers = observers or Observers()
        self._moments: list[datetime] = []  # at which slices that follow those of this runner are due

    @property
    def next_at(self) -> datetime | None:
        """When the next slice is due that this runner knows of: another one may run it, or stop its operation."""
        return min(self._moments, default=None)

    async def run_one(self) -> bool:
        """Run one slice that is due, of any operation; False if none is."""
        now = self._clock.now()
        batch = await self._driver.reserve((OPERATIONS_QUEUE,), now, SLICE_LEASE, 1, self._name)
        self._moments = [moment for moment in self._moments if moment > now]
        for reserved in batch:
            await self._run(reserved)
        return bool(batch)

    async def _run(self, reserved: Reserved) -> None:
        job = reserved.job
        if job.type != OPERATION_TYPE:  # of a later version, or of a program that ignores that the queue is core's
            again = decide.after(self._clock.now(), UNKNOWN_TYPE_PAUSE)
            await self._settle(reserved, decide.give_back(job, reserved.lease, again))
            return
        try:
            state = read_state(job.payload)
        except ValueError as error:
            reason = f"not the state of an operation: {type(error).__name__}"
            await self._settle(reserved, decide.refuse(job, reserved.lease, reason, self._clock.now()))
            return
        if job.lost >= SLICE_MAX_LOST:
            await self._dead(reserved, state, decide.crashed(job, reserved.lease, self._clock.now(), SLICE_MAX_LOST))
            return
        try:
            step = await run_slice(self._driver, state, self._clock, job.deliveries)
        except (BackendUnavailable, OSError):
            raise  # the lease ends by itself, and the slice runs again
        except Exception as error:
            terms = decide.Terms(SLICE_RETRY, job.max_attempts or 1)
            outcome = decide.on_error(job, reserved.lease, error, terms, self._clock.now()).outcome
            if isinstance(outcome, Fail):
                await self._dead(reserved, state, outcome)
            else:
                await self._settle(reserved, outcome)
        else:
            await self._follow(reserved, step)

    async def _follow(self, reserved: Reserved, step: SliceStep) -> None:
        lease, now = reserved.lease, self._clock.now()
        outcome: Outcome
        if isinstance(step, OperationEnded):
            await self._note_end(reserved, step.state, step.status)
            if await self._settle(reserved, Ack(lease, write_result(step.state, step.status))) is not None:
                await self._note_stop(reserved, step.state)
            return
        if isinstance(step, RunAgain):
            outcome = Retry(lease, step.run_at, reserved.job.attempts)
        else:
            operation_id = reserved.job.flow_id or reserved.job.id
            outcome = Ack(lease, spawn=(slice_record(operation_id, step.state, now, step.run_at),))
        if await self._settle(reserved, outcome, snoozed=isinstance(step, RunAgain)) is None and step.run_at:
            self._moments.append(step.run_at)

    async def _dead(self, reserved: Reserved, state: OperationState, outcome: Fail) -> None:
        if (
            await self._settle(reserved, outcome) is None
        ):  # first: a store that cannot take an entry must not prevent it
            await self._note_end(reserved, state, OperationStatus.FAILED)
            self._observers.emit(JobDeadLettered(reserved.job, self._name, outcome.attempts, outcome.reason))
        else:
            await self._note_stop(reserved, state)

    async def _settle(self, reserved: Reserved, outcome: Outcome, snoozed: bool = False) -> TaskHarborError | None:
        """Settle a slice. A refusal means that its operation was stopped, or that another runner has the slice now."""
        settled = with_trail(reserved.job, outcome, self._clock.now(), lost_by=reserved.lost_by, snoozed=snoozed)
        (refused,) = await self._driver.settle([settled], self._clock.now())
        return refused

    async def _note_end(self, reserved: Reserved, state: OperationState, status: OperationStatus) -> None:
        """Write the end of an operation into the audit, before it is settled: then it cannot be missing."""
        now = self._clock.now()
        entry = ended_entry(reserved.job.flow_id or reserved.job.id, state, status)
        await self._driver.put_audit([entry.stored()], now)
        self._observers.emit(OperatorActed(entry))

    async def _note_stop(self, reserved: Reserved, state: OperationState) -> None:
        """A stop was faster than the end that `_note_end` wrote: the audit says so, too."""
        try:
            info = await self._driver.inspect(reserved.job.id, self._clock.now())
        except JobNotFound:
            return
        if info.state is State.CANCELLED:
            await self._note_end(reserved, state, OperationStatus.STOPPED)
