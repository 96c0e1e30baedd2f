"""What operators do: each action checks access first, and is in the audit.

Every front end acts through `Actions`: the command line as the administrator that the shell's user is, others with the
access that they were given. Nothing is decided in a command or a template.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from taskharbor.bulk.plan import OperationStatus, is_operation, may_be_slice
from taskharbor.client.audit import audited
from taskharbor.client.operation import Operation
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import Seen, State
from taskharbor.ops.access import Access, Permission

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.operation import DryRun
    from taskharbor.client.schedule_info import ScheduleInfo
    from taskharbor.client.scheduled_step import Scheduled
    from taskharbor.schedules.rule import RuleOptions

T = TypeVar("T")

DUE_SOON = timedelta(seconds=5)
_WHY_NOT = {
    State.READY: "is already ready: `taskharbor explain` says what it waits for",
    State.INFLIGHT: "is running",
    State.BLOCKED: "waits for other jobs: `taskharbor explain` says for which",
    State.DONE: "is done: enqueue a new job to run it again",
}


class Actions:
    """What one person does with a store. `access`: what they may do, and their name."""

    def __init__(self, client: Client, access: Access) -> None:
        self._client = client
        self._access = access

    # Jobs by id ------------------------------------------------------------------------------------------------

    async def requeue(self, ids: Sequence[str], *, reset_attempts: bool = True) -> list[DriverError | None]:
        """Bring dead and cancelled jobs back; an error in the place of each that is neither."""
        self._access.check(Permission.REQUEUE)
        now = self._client.clock.now

        async def requeue(driver: Driver) -> list[DriverError | None]:
            slices = await _slices(driver, ids, now())
            others = [id for id in ids if id not in slices]
            errors = iter(await driver.requeue(others, now(), None, reset_attempts) if others else ())
            return [_part_of_operation(id) if id in slices else next(errors) for id in ids]

        return await self._each("requeue", ids, requeue)

    async def retry(self, ids: Sequence[str], *, reset_attempts: bool = True) -> list[DriverError | None]:
        """Make dead, cancelled and scheduled jobs ready now."""
        self._access.check(Permission.REQUEUE)

        async def each(driver: Driver) -> list[DriverError | None]:
            return [await _make_ready(driver, id, self._client.clock.now(), reset_attempts) for id in ids]

        return await self._each("retry", ids, each)

    async def cancel(self, ids: Sequence[str]) -> list[DriverError | None]:
        """Cancel jobs that have not ended, or the workflows that took their places.

        To cancel a slice of an operation is to stop the operation, and needs that permission, too.
        """
        self._access.check(Permission.CANCEL)

        async def cancel(budget: Budget) -> list[DriverError | None]:
            found: list[DriverError | None] = []
            for id in ids:
                try:
                    await self._client.lookup.cancel_job(id, budget)
                    found.append(None)
                except (JobNotFound, WrongState) as error:
                    found.append(error)
            return found

        budget = self._budget("cancel")
        if await with_retries(lambda driver: _slices(driver, ids, self._client.clock.now()), budget):
            self._access.check(Permission.STOP)
        return await self._audited("cancel", budget, lambda: cancel(budget), ids=ids, tally=_tally)

    async def delete(self, ids: Sequence[str], *, state: State | None = None) -> list[DriverError | None]:
        """Forget jobs: in any state, or only those in `state`, which the others are refused for."""
        self._access.check(Permission.DELETE)
        if state is None:
            return await self._each("delete", ids, lambda driver: driver.delete(ids))
        now = self._client.clock.now

        async def each(driver: Driver) -> list[DriverError | None]:
            return [await _delete_in(driver, id, now(), state) for id in ids]

        return await self._each("delete", ids, each)

    async def amend(self, change: Amend, *, requeue: bool = False) -> None:
        """Change a job that is still as it was when the change was made; with `requeue` bring it back as well.

        WrongState if it was reserved or amended since; then nothing is changed.
        """
        self._access.check(Permission.AMEND)
        if requeue:
            self._access.check(Permission.REQUEUE)
        budget = self._budget("amend")

        async def make(driver: Driver) -> None:
            info = await driver.inspect(change.id, self._client.clock.now())
            if is_operation(info):  # its payload says what is done, and in whose name
                raise _part_of_operation(change.id)
            (refused,) = await driver.amend([change], self._client.clock.now())
            if refused is not None:
                raise refused

        await self._audited("amend", budget, lambda: with_retries(make, budget), ids=(change.id,))
        if requeue:
            (refused,) = await self._requeue_amended(change)
            if refused is not None:
                raise refused

    async def _requeue_amended(self, change: Amend) -> list[DriverError | None]:
        """Requeue a job if it is as its amendment left it: another operator may have been as fast."""
        ids, clock = [change.id], self._client.clock

        async def requeue(driver: Driver) -> list[DriverError | None]:
            info = await driver.inspect(change.id, clock.now())
            seen = Seen(change.deliveries, change.edits + 1, info.job.finished_at)
            return await driver.requeue(ids, clock.now(), None, True, seen=[seen])

        return await self._each("requeue", ids, requeue)

    # Jobs by filter --------------------------------------------------------------------------------------------

    async def begin(self, jobs: Jobs, action: str, **options: Any) -> Operation:
        """Requeue, cancel or delete all jobs of a filter; the options are those of `Jobs.requeue`."""
        self._access.check(action)
        begun: Operation = await _verb(jobs, action)(by=self._access.name, **options)
        return begun

    async def dry_run(self, jobs: Jobs, action: str, **options: Any) -> DryRun:
        """What such an operation would touch."""
        self._access.check(Permission.VIEW)
        found: DryRun = await _verb(jobs, action)(by=self._access.name, dry_run=True, **options)
        return found

    async def stop(self, operation_id: str) -> None:
        """Let an operation do no more."""
        self._access.check(Permission.STOP)
        await Operation(self._client, operation_id).astop(by=self._access.name)

    async def go_on(self, operation_id: str) -> Operation:
        """Let an operation go on that failed; one that runs goes on anyway. WrongState if it has ended otherwise.

        Needs the permission for what the operation does, too.
        """
        self._access.check(Permission.STOP)
        operation = Operation(self._client, operation_id)
        progress = await operation.aprogress()
        if progress.status is OperationStatus.FAILED:
            self._access.check(await operation.aaction())
            budget = self._budget("resume")
            await self._audited("resume", budget, operation.aretry, target=operation_id)
        elif progress.status.ended:
            raise WrongState(f"operation {operation_id} is {progress.status}, so it does not go on; begin a new one")
        return operation

    # Queues -------------------------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        """Hand out no jobs of a queue."""
        self._access.check(Permission.PAUSE)
        await self._client.apause(queue, by=self._access.name)

    async def resume(self, queue: str) -> None:
        """Hand them out again."""
        self._access.check(Permission.RESUME)
        await self._client.aresume(queue, by=self._access.name)

    # Schedules -------------------------------------------------------------------------------------------------

    async def add_schedule(self, name: str, step: Scheduled, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Add a schedule."""
        self._access.check(Permission.ADD)
        return await self._client.schedules.aadd(name, step, by=self._access.name, **options)

    async def edit_schedule(self, name: str, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Change when a schedule comes."""
        self._access.check(Permission.AMEND)
        return await self._client.schedules.aedit(name, by=self._access.name, **options)

    async def reset_schedule(self, name: str) -> ScheduleInfo:
        """Drop what was edited."""
        self._access.check(Permission.AMEND)
        return await self._client.schedules.areset(name, by=self._access.name)

    async def pause_schedule(self, name: str) -> ScheduleInfo:
        """Let a schedule make no jobs."""
        self._access.check(Permission.PAUSE)
        return await self._client.schedules.apause(name, by=self._access.name)

    async def resume_schedule(self, name: str) -> ScheduleInfo:
        """Let it make jobs again."""
        self._access.check(Permission.RESUME)
        return await self._client.schedules.aresume(name, by=self._access.name)

    async def run_schedule(self, name: str) -> str:
        """Make a job of a schedule now; returns its id."""
        self._access.check(Permission.RUN)
        return (await self._client.schedules.arun(name, by=self._access.name)).id

    async def delete_schedule(self, name: str) -> ScheduleInfo:
        """Delete a schedule, and return what it was."""
        self._access.check(Permission.DELETE)
        return await self._client.schedules.adelete(name, by=self._access.name)

    # Flows -----------------------------------------------------------------------------------------------------

    async def cancel_flow(self, flow_id: str) -> int:
        """Cancel what has not ended in a flow; returns the number of jobs. That of an operation needs the permission
        to stop it, too."""
        self._access.check(Permission.CANCEL)
        budget = self._budget("cancel")
        if await self._first_slice(flow_id, budget) is not None:
            self._access.check(Permission.STOP)
        return await self._audited(
            "cancel flow",
            budget,
            lambda: self._client.lookup.cancel_flow(flow_id, budget),
            target=flow_id,
            tally=lambda number: (number, 0),
        )

    async def requeue_flow(self, flow_id: str) -> int:
        """Bring the dead jobs of a flow back; returns their number."""
        self._access.check(Permission.REQUEUE)
        budget = self._budget("requeue")

        async def requeue() -> int:
            slice = await self._first_slice(flow_id, budget)
            if slice is not None:
                raise _part_of_operation(slice)
            return await self._client.lookup.requeue_flow(flow_id, budget)

        return await self._audited(
            "requeue flow",
            budget,
            requeue,
            target=flow_id,
            tally=lambda number: (number, 0),
        )

    # ----------------------------------------------------------------------------------------------------------

    async def reveal(self, ids: Sequence[str] = (), *, jobs: Jobs | None = None) -> None:
        """Note that payloads and results of these jobs are shown, or exported by a filter; AccessDenied if they may
        not be."""
        self._access.check(Permission.REVEAL)
        action, filter = ("reveal", {}) if jobs is None else ("export", jobs.frozen().given())
        await self._audited(
            action, self._budget("reveal"), _nothing, ids=ids, filter=filter, tally=lambda _: (len(ids) or None, 0)
        )

    async def _first_slice(self, flow_id: str, budget: Budget) -> str | None:
        """The id of the first slice, if a flow is an operation."""
        now = self._client.clock.now
        first = await with_retries(lambda driver: driver.list(flow_id=flow_id, limit=1, now=now()), budget)
        return next((info.job.id for info in first.items if is_operation(info)), None)

    def _budget(self, what: str) -> Budget:
        return self._client.budget(self._client.awaited, what)

    async def _each(
        self, action: str, ids: Sequence[str], act: Callable[[Any], Awaitable[list[DriverError | None]]]
    ) -> list[DriverError | None]:
        if not ids:
            return []
        budget = self._budget(action)
        return await self._audited(action, budget, lambda: with_retries(act, budget), ids=ids, tally=_tally)

    async def _audited(
        self,
        action: str,
        budget: Budget,
        act: Callable[[], Awaitable[T]],
        *,
        ids: Sequence[str] = (),
        target: str = "",
        filter: Mapping[str, str] | None = None,
        tally: Callable[[T], tuple[int | None, int]] = lambda result: (1, 0),
    ) -> T:
        return await audited(
            self._client,
            action,
            self._access.name,
            budget,
            act,
            ids=ids,
            target=target,
            filter=filter,
            tally=tally,
        )


def _tally(errors: Sequence[DriverError | None]) -> tuple[int, int]:
    refused = sum(error is not None for error in errors)
    return len(errors) - refused, refused


async def _nothing() -> None:
    return None


def _verb(jobs: Jobs, action: str) -> Callable[..., Awaitable[Any]]:
    verbs: dict[str, Callable[..., Awaitable[Any]]] = {
        "requeue": jobs.arequeue,
        "cancel": jobs.acancel,
        "delete": jobs.adelete,
    }
    if action not in verbs:
        raise ValueError(f"action: expected one of {', '.join(verbs)}, got {action!r}")
    return verbs[action]


async def _slices(driver: Driver, ids: Sequence[str], now: datetime) -> set[str]:
    """Those of these jobs that are part of an operation: it goes on only as a whole, with its own permission."""
    found = set()
    for id in filter(may_be_slice, ids):
        try:
            if is_operation(await driver.inspect(id, now)):
                found.add(id)
        except JobNotFound:
            continue
    return found


def _part_of_operation(id: str) -> WrongState:
    return WrongState(
        f"job {id} is part of an operation, which is neither amended nor requeued; `taskharbor dlq operations` lists "
        "and resumes operations"
    )


async def _make_ready(driver: Driver, id: str, now: datetime, reset: bool) -> DriverError | None:
    """Make one job ready; the error that says why it cannot be."""
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if is_operation(info):
        return _part_of_operation(id)
    if info.state in _WHY_NOT:
        return WrongState(f"job {id} {_WHY_NOT[info.state]}")
    if info.state is State.SCHEDULED:
        if not (reset and info.job.attempts):  # an amendment keeps the count of failures
            change = Amend(id=id, deliveries=info.job.deliveries, edits=info.job.edits, run_at=None)
            refused = (await driver.amend([change], now))[0]
            assert refused is None or isinstance(refused, DriverError)  # not InvalidJob: run_at=None is valid
            return refused
        if info.job.run_at is not None and info.job.run_at - now < DUE_SOON:
            return None  # it becomes due by itself; cancelling it might hit a job that has just begun to run
        refused = (await driver.cancel([id], now))[0]
        if refused is not None:
            return refused
    return (await driver.requeue([id], now, reset_attempts=reset))[0]


async def _delete_in(driver: Driver, id: str, now: datetime, state: State) -> DriverError | None:
    """Delete one job that is in this state, and has not changed since that was read."""
    try:
        info = await driver.inspect(id, now)
    except JobNotFound as error:
        return error
    if info.state is not state:
        return WrongState(f"job {id} is {info.state}, not {state}: `taskharbor job delete` deletes it in any state")
    return (await driver.delete([id], [Seen.of(info)]))[0]
