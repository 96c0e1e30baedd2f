"""Bulk operations: `jobs.requeue(…)` and its neighbours make one, and this handle follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.bulk.plan import (
    MAX_CANARY_JOBS,
    Action,
    FrozenFilter,
    OperationPlan,
    OperationStatus,
    first_state,
    read_result,
    read_state,
    slice_record,
)
from taskharbor.bulk.record import begun_entry, ended_entry
from taskharbor.bulk.runner import OperationRunner
from taskharbor.client.audit import audited, put_entry
from taskharbor.client.budget import Budget
from taskharbor.client.jobs import Count
from taskharbor.client.listing import at_least_one
from taskharbor.client.portal import refuse_on_loop
from taskharbor.client.retries import with_retries
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import BackendUnavailable, JobNotFound, WrongState
from taskharbor.model.events import OperatorActed
from taskharbor.model.ids import new_id
from taskharbor.model.job import OPERATIONS_QUEUE, JobInfo, State
from taskharbor.model.times import Duration, duration, to_ms

if TYPE_CHECKING:
    from taskharbor.client.client import Client

POLL_S = 0.5
LONGEST_POLL_S = 5.0
BEGUN_IN_DOUBT = "The operation may or may not have begun; harbor.audit() lists it if it has"


class DryRun(msgspec.Struct, frozen=True):
    """What an operation would touch: how many jobs fit, some of them, and the moment at which the filter was frozen.

    Give `until=cut` to the same filter, and the operation acts on what was shown, less what changed since.
    """

    action: str  # requeue, cancel or delete
    count: Count  # how many jobs fit
    sample: list[JobInfo]  # some of them
    cut: datetime  # when the filter was frozen


class OperationProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an operation is. `total` is None unless it counts first, which only `spread` needs.

    `skipped`: jobs that fitted and were changed by others before it came to them. A slice that a crash made run twice
    is counted once, so `done` may then be lower than what was done. `failures`: jobs of the canary that died again.
    """

    status: OperationStatus  # how it stands
    phase: str  # what it does next: choose, canary, await, count or act
    done: int
    skipped: int
    total: int | None
    failures: int
    began_at: datetime  # when it was made
    reason: str = ""  # why it failed

    def __str__(self) -> str:
        total = f" of {self.total}" if self.total is not None else ""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.status}: {self.done}{total} done{skipped}"


class Operation:
    """One bulk operation, by its id. Workers carry it out, beside their jobs; `run` does so in this program."""

    __slots__ = ("_client", "id")

    _called = "operation"

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    def __repr__(self) -> str:
        return f"Operation({self.id!r})"

    @both
    async def status(self, budget: Budget) -> OperationStatus:
        """Whether it runs, or how it ended. JobNotFound if its slices are gone, a week after its end."""
        return progress_of(await self._newest(budget)).status

    astatus = status.awaited

    @both
    async def progress(self, budget: Budget) -> OperationProgress:
        """How far it is. Blocks for one read of the store."""
        return progress_of(await self._newest(budget))

    aprogress = progress.awaited

    @both
    async def stop(self, budget: Budget, *, by: str | None = None) -> None:
        """Let it do no more. What it has not touched stays as it is; a slice that is under way may still end.

        `by`: who stops it, for the audit. One that has ended stays as it is.
        """
        client = self._client
        if progress_of(await self._newest(budget.again())).status.ended:
            return
        await audited(client, "stop", by, budget, lambda: client.lookup.cancel_flow(self.id, budget), target=self.id)
        info = await self._newest(budget.again())
        if progress_of(info).status is OperationStatus.STOPPED:
            entry = ended_entry(self.id, read_state(info.job.payload), OperationStatus.STOPPED)
            await put_entry(client, entry, budget)
            client.emit(OperatorActed(entry))

    astop = stop.awaited

    @both(polls=True, instead="await operation.await_(...)")
    async def wait(self, budget: Budget, timeout: Duration | None = None) -> OperationProgress:
        """Wait until it has ended, and return how; TimeoutError after `timeout`."""
        access, pause = budget.access, 0.05
        seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        ends = None if seconds is None else access.time() + seconds
        while True:
            progress = progress_of(await self._newest(budget.again()))
            if progress.status.ended:
                return progress
            left = pause if ends is None else min(pause, ends - access.time())
            if left <= 0:
                raise TimeoutError(f"operation {self.id} has not ended within {seconds:g} s; it goes on")
            await access.sleep(left)
            pause = min(pause * 1.5, 1.0)

    await_ = wait.awaited

    def run(self, *, on_progress: Callable[[OperationProgress], None] | None = None) -> OperationProgress:
        """Carry it out in this program, with whatever workers do of it, and return how it ended.

        Slices of other operations that are due are carried out on the way. If this program ends in the middle, workers
        go on, or `harbor.operation(id).run()` does. `on_progress`: a function that is called after each slice.
        """
        refuse_on_loop("operation.run")
        return self._client.portal.call(lambda: self.arun(on_progress=on_progress), "operation.run", None)

    async def arun(self, *, on_progress: Callable[[OperationProgress], None] | None = None) -> OperationProgress:
        """The same, awaited."""
        client, pause = self._client, POLL_S
        while True:
            driver: Driver = await client.awaited.driver(0)
            runner = OperationRunner(driver, client.clock, f"operation-{self.id}", client.observers)
            try:
                ran = await _to_its_end(runner.run_one())
            except BackendUnavailable as error:
                if error.lasting:
                    raise
                ran = False
            if not ran and await driver.is_paused(OPERATIONS_QUEUE):
                raise WrongState(f"the queue {OPERATIONS_QUEUE} is paused, so no operation goes on; resume it first")
            progress = progress_of(await self._newest())
            if on_progress is not None:
                on_progress(progress)
            if progress.status.ended:
                return progress
            pause = 0.0 if ran else min(max(pause * 1.5, POLL_S), LONGEST_POLL_S)
            if pause:
                await client.clock.sleep(min(pause, await self._until_due(pause)))

    async def aaction(self) -> str:
        """What it does: requeue, cancel or delete."""
        return read_state((await self._newest()).job.payload).plan.action.value

    async def aretry(self) -> None:
        """Bring the slice back that made it fail, so that it goes on from there."""
        client = self._client
        info = await self._newest()
        state = read_state(info.job.payload)
        budget = client.budget(client.awaited, "resume")
        await put_entry(client, begun_entry(self.id, state.plan, state.began_at), budget)

        async def requeue(driver: Driver) -> None:
            (refused,) = await driver.requeue([info.job.id], client.clock.now())
            if refused is not None:
                raise refused

        await with_retries(requeue, budget)

    async def _until_due(self, most: float) -> float:
        """Seconds until the next slice is due, at most `most`."""
        info = await self._newest()
        if info.job.run_at is None:
            return most
        return min(most, max((info.job.run_at - self._client.clock.now()).total_seconds(), 0.01))

    async def _newest(self, budget: Budget | None = None) -> JobInfo:
        """The newest slice: it has the state of the whole."""
        client = self._client

        async def read(driver: Driver) -> JobInfo:
            page = await driver.list(flow_id=self.id, order="-id", limit=1, now=client.clock.now())
            if not page.items:
                raise JobNotFound(
                    f"no operation {self.id}: its jobs are kept for a week after its end; harbor.audit() knows longer "
                    "what it did"
                )
            found: JobInfo = page.items[0]
            return found

        return await with_retries(read, budget or client.budget(client.awaited, "operation"))


async def _to_its_end(slice: Coroutine[Any, Any, bool]) -> bool:
    """Run a slice, also if the caller is cancelled meanwhile: its lease would keep others from it for a minute."""
    running = asyncio.ensure_future(slice)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise


def progress_of(info: JobInfo) -> OperationProgress:
    """How far an operation is, from its newest slice."""
    try:
        state = read_state(info.job.payload)
    except ValueError:
        raise JobNotFound(f"job {info.job.id} is not part of an operation") from None
    status, failures = OperationStatus.RUNNING, state.failures
    done, skipped = state.done, state.skipped
    if info.state is State.DONE and info.job.result is not None:
        result = read_result(info.job.result)
        status, done, skipped, failures = result.status, result.done, result.skipped, result.failures
    elif info.state is State.CANCELLED:
        status = OperationStatus.STOPPED
    elif info.state is State.DLQ:
        status = OperationStatus.FAILED
    return OperationProgress(
        status=status,
        phase=state.phase,
        done=done,
        skipped=skipped,
        total=state.total + len(state.canaries) if state.total else None,  # counted is what comes after the canary
        failures=failures,
        began_at=state.began_at,
        reason=info.job.reason,
    )


def checked_plan(
    action: Action,
    filter: FrozenFilter,
    by: str,
    *,
    reset_attempts: bool = True,
    spread: Duration | None = None,
    canary: int = 0,
    max_failures: int = 0,
    limit: int | None = None,
) -> OperationPlan:
    """What a caller gave, as a plan; TypeError or ValueError for what makes no sense."""
    if not isinstance(reset_attempts, bool):
        raise TypeError(f"reset_attempts: expected True or False, got {type(reset_attempts).__name__}")
    for name, number in (("canary", canary), ("max_failures", max_failures)):
        if type(number) is not int:
            raise TypeError(f"{name}: expected a whole number, got {type(number).__name__}")
        if number < 0:
            raise ValueError(f"{name}: expected 0 or more, got {number}")
    if canary > MAX_CANARY_JOBS:
        raise ValueError(f"canary: expected at most {MAX_CANARY_JOBS}, got {canary}")
    if max_failures and not canary:
        raise ValueError("max_failures: expected it together with canary=, the number of jobs to try first")
    _check_state(action, filter.state)
    return OperationPlan(
        action=action,
        filter=filter,
        by=by,
        reset_attempts=reset_attempts,
        spread_s=0.0 if spread is None else duration(spread, "spread").total_seconds(),
        canary=canary,
        max_failures=max_failures,
        limit=0 if limit is None else at_least_one(limit, "limit"),
    )


def _check_state(action: Action, state: State | None) -> None:
    """ValueError for a filter whose jobs the action cannot change, or that would take more than is meant."""
    if action is Action.REQUEUE and state not in (State.DLQ, State.CANCELLED):
        raise ValueError(f"requeue: expected a filter with state='dlq' or state='cancelled', got state={_said(state)}")
    if action is Action.CANCEL and state is not None and state.terminal:
        raise ValueError(f"cancel: expected a filter for jobs that have not ended, got state={_said(state)}")
    if action is Action.DELETE and state is None:
        raise ValueError("delete: expected a filter with state=, such as state='dlq': without it running jobs fit too")


def _said(state: State | None) -> str:
    return "None" if state is None else repr(state.value)


async def begin(client: Client, budget: Budget, plan: OperationPlan) -> Operation:
    """Store the first slice of an operation, and its entry in the audit."""
    budget.doubt = lambda: BEGUN_IN_DOUBT
    await with_retries(lambda driver: driver.server_time(), budget)  # so that the clock follows the store's
    now = client.clock.now()
    operation_id = new_id(to_ms(now))
    frozen = msgspec.structs.replace(
        plan, filter=msgspec.structs.replace(plan.filter, until=min(plan.filter.until or now, now))
    )
    entry = begun_entry(operation_id, frozen, now)
    await put_entry(client, entry, budget)
    record = slice_record(operation_id, first_state(frozen, now), now)
    await with_retries(lambda driver: driver.enqueue([record], now), budget)
    client.emit(OperatorActed(entry))
    return Operation(client, operation_id)
