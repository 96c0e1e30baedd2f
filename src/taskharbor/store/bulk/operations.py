"""Operations over many jobs, from outside: begin one, see how far it is, stop it, let it go on.

An operation is a flow of slices (`plan`), and its newest slice has the state of the whole.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.events import OperatorActed
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobInfo, State
from taskharbor.model.times import Duration, duration, to_ms
from taskharbor.model.validation import at_least_one
from taskharbor.store.audit import audited, put_entry
from taskharbor.store.bulk.plan import (
    MAX_CANARY_JOBS,
    Action,
    FrozenFilter,
    OperationPlan,
    OperationStatus,
    ended_entry,
    entry_of,
    first_state,
    read_result,
    read_state,
    slice_record,
)
from taskharbor.store.flows import CANCEL_IN_DOUBT

if TYPE_CHECKING:
    from taskharbor.store.access import StoreCall

BEGUN_IN_DOUBT = "The operation may or may not have begun; harbor.audit() lists it if it has"


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
    shown = None if state is None else repr(state.value)
    if action is Action.REQUEUE and state not in (State.DLQ, State.CANCELLED):
        raise ValueError(f"requeue: expected a filter with state='dlq' or state='cancelled', got state={shown}")
    if action is Action.CANCEL and state is not None and state.terminal:
        raise ValueError(f"cancel: expected a filter for jobs that have not ended, got state={shown}")
    if action is Action.DELETE and state is None:
        raise ValueError("delete: expected a filter with state=, such as state='dlq': without it running jobs fit too")


async def begin(call: StoreCall, plan: OperationPlan) -> str:
    """Store the first slice of an operation, and its entry in the audit; returns its id."""
    call.doubt = lambda: BEGUN_IN_DOUBT
    await call.ask(lambda driver: driver.server_time())  # so that the clock follows the store's
    now = call.now()
    operation_id = new_id(to_ms(now))
    frozen = msgspec.structs.replace(
        plan, filter=msgspec.structs.replace(plan.filter, until=min(plan.filter.until or now, now))
    )
    entry = entry_of(operation_id, frozen, now, OperationStatus.RUNNING)
    await put_entry(call, entry)
    record = slice_record(operation_id, first_state(frozen, now), now)
    await call.ask(lambda driver: driver.enqueue([record], now))
    call.store.emit(OperatorActed(entry))
    return operation_id


async def newest_slice(call: StoreCall, id: str) -> JobInfo:
    """The newest slice of an operation; JobNotFound if they are gone."""
    return await call.ask(lambda driver: _newest_slice(driver, id, call.now()))


async def _newest_slice(driver: Driver, id: str, now: datetime) -> JobInfo:
    page = await driver.list(flow_id=id, order="-id", limit=1, now=now)
    if not page.items:
        raise JobNotFound(
            f"no operation {id}: its jobs are kept for a week after its end; harbor.audit() knows longer what it did"
        )
    return page.items[0]


async def progress(call: StoreCall, id: str) -> OperationProgress:
    """How far an operation is."""
    return progress_of(await newest_slice(call, id))


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


async def stop(call: StoreCall, id: str, by: str | None) -> None:
    """Let an operation do no more. One that has ended stays as it is."""
    if (await progress(call.again(), id)).status.ended:
        return
    await audited(call, "stop", by, lambda driver: driver.cancel_flow(id, call.now()), CANCEL_IN_DOUBT, target=id)
    info = await newest_slice(call.again(), id)
    if progress_of(info).status is OperationStatus.STOPPED:
        entry = ended_entry(id, read_state(info.job.payload), OperationStatus.STOPPED)
        await put_entry(call, entry)
        call.store.emit(OperatorActed(entry))


async def action_of(call: StoreCall, id: str) -> str:
    """What an operation does: requeue, cancel or delete."""
    return read_state((await newest_slice(call, id)).job.payload).plan.action.value


async def go_on(driver: Driver, id: str, now: datetime) -> None:
    """Bring the slice back that made an operation fail, so that it goes on from there."""
    info = await _newest_slice(driver, id, now)
    state = read_state(info.job.payload)
    entry = entry_of(id, state.plan, state.began_at, OperationStatus.RUNNING)
    await driver.put_audit([entry.stored()], now)
    (refused,) = await driver.requeue([info.job.id], now)
    if refused is not None:
        raise refused
