"""What operators do: each action checks access first, and is in the audit.

Every front end acts through `Actions`: the command line as the administrator that the shell's user is, others with the
access that they were given. Nothing is decided in a command or a template.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from taskharbor.client.operation import Operation
from taskharbor.client.schedules import Schedules
from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.errors import DriverError, JobNotFound, WrongState
from taskharbor.model.job import State
from taskharbor.ops.access import Access, Permission
from taskharbor.store import flows, jobs
from taskharbor.store.amend import amend_as_seen, requeue_amended
from taskharbor.store.audit import audited
from taskharbor.store.bulk import operations
from taskharbor.store.bulk.plan import OperationStatus, is_operation
from taskharbor.store.queues import pause, resume

if TYPE_CHECKING:
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.operation import DryRun
    from taskharbor.client.scheduled_step import Scheduled
    from taskharbor.schedules.rule import RuleOptions
    from taskharbor.store.access import Act, StoreCall
    from taskharbor.store.schedules import ScheduleInfo
    from taskharbor.store.session import Store

T = TypeVar("T")


class Actions:
    """What one person does with a store. `access`: what they may do, and their name."""

    def __init__(self, store: Store, access: Access) -> None:
        self._store = store
        self._access = access

    # Jobs by id ------------------------------------------------------------------------------------------------

    async def requeue(
        self, ids: Sequence[str], *, reset_attempts: bool = True, fresh: bool = False
    ) -> list[DriverError | None]:
        """Bring dead and cancelled jobs back; an error in the place of each that is neither. `fresh`: without their
        steps."""
        call = self._begin(Permission.REQUEUE)
        again = flows.Requeue(reset_attempts=reset_attempts, fresh=fresh)
        return await self._each(call, ids, lambda driver: jobs.requeue_each(driver, ids, call.now(), again))

    async def retry(self, ids: Sequence[str], *, reset_attempts: bool = True) -> list[DriverError | None]:
        """Make dead, cancelled and scheduled jobs ready now."""
        call = self._begin(Permission.REQUEUE, "retry")

        async def each(driver: Driver) -> list[DriverError | None]:
            return [await jobs.make_ready(driver, id, call.now(), reset_attempts) for id in ids]

        return await self._each(call, ids, each)

    async def cancel(self, ids: Sequence[str]) -> list[DriverError | None]:
        """Cancel jobs that have not ended, or the workflows that took their places.

        To cancel a slice of an operation is to stop the operation, and needs that permission, too.
        """
        call = self._begin(Permission.CANCEL)
        if await call.ask(lambda driver: jobs.slices_among(driver, ids, call.now())):
            self._access.check(Permission.STOP)

        errors: list[DriverError | None] = []

        async def cancel(driver: Driver) -> list[DriverError | None]:
            for id in ids[len(errors) :]:  # where the last try ended
                try:
                    await jobs.cancel(call, id)(driver)
                    errors.append(None)
                except (JobNotFound, WrongState) as error:
                    errors.append(error)
            return errors

        return await self._each(call, ids, cancel, flows.CANCEL_IN_DOUBT)

    async def delete(self, ids: Sequence[str], *, state: State | None = None) -> list[DriverError | None]:
        """Forget jobs: in any state, or only those in `state`, which the others are refused for."""
        call = self._begin(Permission.DELETE)
        if state is None:
            return await self._each(call, ids, lambda driver: driver.delete(ids))

        async def each(driver: Driver) -> list[DriverError | None]:
            return [await jobs.delete_in(driver, id, call.now(), state) for id in ids]

        return await self._each(call, ids, each)

    async def amend(self, change: Amend, *, requeue: bool = False) -> None:
        """Change a job that is still as it was when the change was made; with `requeue` bring it back as well.

        WrongState if it was reserved or amended since; then nothing is changed.
        """
        call = self._begin(Permission.AMEND)
        if requeue:
            self._access.check(Permission.REQUEUE)
        await self._audited(call, lambda driver: amend_as_seen(driver, change, call.now()), ids=(change.id,))
        if requeue:
            again = call.again("requeue")
            (refused,) = await self._each(
                again, [change.id], lambda driver: requeue_amended(driver, change, again.now())
            )
            if refused is not None:
                raise refused

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
        await operations.stop(self._begin(Permission.STOP), operation_id, self._access.name)

    async def go_on(self, operation_id: str) -> Operation:
        """Let an operation go on that failed; one that runs goes on anyway. WrongState if it has ended otherwise.

        Needs the permission for what the operation does, too.
        """
        call = self._begin(Permission.STOP, "resume")
        progress = await operations.progress(call.again(), operation_id)
        if progress.status is OperationStatus.FAILED:
            self._access.check(await operations.action_of(call.again(), operation_id))
            await self._audited(
                call, lambda driver: operations.go_on(driver, operation_id, call.now()), target=operation_id
            )
        elif progress.status.ended:
            raise WrongState(f"operation {operation_id} is {progress.status}, so it does not go on; begin a new one")
        return Operation(self._store, operation_id)

    # Queues -------------------------------------------------------------------------------------------------

    async def pause(self, queue: str) -> None:
        """Hand out no jobs of a queue."""
        await pause(self._begin(Permission.PAUSE), queue, self._access.name)

    async def resume(self, queue: str) -> None:
        """Hand them out again."""
        await resume(self._begin(Permission.RESUME), queue, self._access.name)

    # Schedules -------------------------------------------------------------------------------------------------

    async def add_schedule(self, name: str, step: Scheduled, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Add a schedule."""
        return await self._schedules(Permission.ADD).aadd(name, step, by=self._access.name, **options)

    async def edit_schedule(self, name: str, **options: Unpack[RuleOptions]) -> ScheduleInfo:
        """Change when a schedule comes."""
        return await self._schedules(Permission.AMEND).aedit(name, by=self._access.name, **options)

    async def reset_schedule(self, name: str) -> ScheduleInfo:
        """Drop what was edited."""
        return await self._schedules(Permission.AMEND).areset(name, by=self._access.name)

    async def pause_schedule(self, name: str) -> ScheduleInfo:
        """Let a schedule make no jobs."""
        return await self._schedules(Permission.PAUSE).apause(name, by=self._access.name)

    async def resume_schedule(self, name: str) -> ScheduleInfo:
        """Let it make jobs again."""
        return await self._schedules(Permission.RESUME).aresume(name, by=self._access.name)

    async def run_schedule(self, name: str) -> str:
        """Make a job of a schedule now; returns its id."""
        return (await self._schedules(Permission.RUN).arun(name, by=self._access.name)).id

    async def delete_schedule(self, name: str) -> ScheduleInfo:
        """Delete a schedule, and return what it was."""
        return await self._schedules(Permission.DELETE).adelete(name, by=self._access.name)

    def _schedules(self, permission: Permission) -> Schedules:
        self._access.check(permission)
        return Schedules(self._store)

    # Flows -----------------------------------------------------------------------------------------------------

    async def cancel_flow(self, flow_id: str) -> int:
        """Cancel what has not ended in a flow; returns the number of jobs. That of an operation needs the permission
        to stop it, too."""
        call = self._begin(Permission.CANCEL)
        if await call.ask(lambda driver: _first_slice(driver, flow_id, call.now())) is not None:
            self._access.check(Permission.STOP)
        return await self._audited(
            call,
            lambda driver: driver.cancel_flow(flow_id, call.now()),
            "cancel flow",
            doubt=flows.CANCEL_IN_DOUBT,
            target=flow_id,
            tally=_number,
        )

    async def requeue_flow(self, flow_id: str) -> int:
        """Bring the dead jobs of a flow back; returns their number."""
        call = self._begin(Permission.REQUEUE)

        async def requeue(driver: Driver) -> int:
            slice = await _first_slice(driver, flow_id, call.now())
            if slice is not None:
                raise jobs.part_of_operation(slice)
            return await flows.requeue_dead(driver, flow_id, flows.Requeue(), call.now())

        return await self._audited(
            call, requeue, "requeue flow", doubt=flows.REQUEUE_IN_DOUBT, target=flow_id, tally=_number
        )

    # ----------------------------------------------------------------------------------------------------------

    async def reveal(self, ids: Sequence[str] = (), *, jobs: Jobs | None = None) -> None:
        """Note that payloads and results of these jobs are shown, or exported by a filter; AccessDenied if they may
        not be."""
        call = self._begin(Permission.REVEAL)
        action, filter = ("reveal", {}) if jobs is None else ("export", jobs._frozen().given())
        await self._audited(call, _nothing, action, ids=ids, filter=filter, tally=lambda _: (len(ids) or None, 0))

    def _begin(self, permission: Permission, what: str = "") -> StoreCall:
        """A call for a person who has this permission; AccessDenied for another one."""
        self._access.check(permission)
        return self._store.call(what or permission.value)

    async def _each(
        self, call: StoreCall, ids: Sequence[str], act: Act[list[DriverError | None]], doubt: str = ""
    ) -> list[DriverError | None]:
        return await self._audited(call, act, doubt=doubt, ids=ids, tally=_tally) if ids else []

    async def _audited(self, call: StoreCall, act: Act[T], action: str = "", **entry: Any) -> T:
        return await audited(call, action or call.what, self._access.name, act, **entry)


def _tally(errors: Sequence[DriverError | None]) -> tuple[int, int]:
    refused = sum(error is not None for error in errors)
    return len(errors) - refused, refused


def _number(jobs: int) -> tuple[int, int]:
    return jobs, 0


async def _nothing(driver: Driver) -> None:
    return None


async def _first_slice(driver: Driver, flow_id: str, now: datetime) -> str | None:
    """The id of the first slice, if a flow is an operation."""
    first = await driver.list(flow_id=flow_id, limit=1, now=now)
    return next((info.job.id for info in first.items if is_operation(info)), None)


def _verb(jobs: Jobs, action: str) -> Callable[..., Awaitable[Any]]:
    verbs: dict[str, Callable[..., Awaitable[Any]]] = {
        "requeue": jobs.arequeue,
        "cancel": jobs.acancel,
        "delete": jobs.adelete,
    }
    if action not in verbs:
        raise ValueError(f"action: expected one of {', '.join(verbs)}, got {action!r}")
    return verbs[action]
