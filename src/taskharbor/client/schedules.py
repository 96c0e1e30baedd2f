"""`harbor.schedules`: schedules at run time, for programs and for the people who run them.

These calls read and change what is in the store. What code declares with `harbor.schedule(…)` is stored when a worker
of that code starts.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.client.audit import audited
from taskharbor.client.handle import JobHandle
from taskharbor.client.listing import at_least_one
from taskharbor.client.schedule_change import (
    ChangeCall,
    Decide,
    Decided,
    DeleteCall,
    FoundSchedule,
    not_found,
    read_schedule,
    readable,
)
from taskharbor.client.schedule_info import ScheduleInfo, ScheduleListing, info_of
from taskharbor.client.scheduled_step import Scheduled, declared
from taskharbor.model.bounds import check_name
from taskharbor.model.events import JobEnqueued
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.times import Duration, duration, to_ms
from taskharbor.schedules.body import Schedule
from taskharbor.schedules.changes import (
    Declaration,
    created,
    paused,
    ran,
    refuse_other,
    resumed,
    with_edit,
    without_edit,
)
from taskharbor.schedules.record import record
from taskharbor.schedules.rule import RuleOptions, checked_rule
from taskharbor.schedules.sequence import preview_of

if TYPE_CHECKING:
    from typing import Unpack

    from taskharbor.client.access import StoreAccess
    from taskharbor.client.client import Client

T = TypeVar("T")

MAX_PREVIEW_SLOTS = 1_000


class Schedules:
    """The schedules of a store.

    >>> from taskharbor import Harbor
    >>> with Harbor("memory://") as harbor:
    ...     @harbor.task(name="sync")
    ...     def sync(customer: str) -> None: ...
    ...     info = harbor.schedules.add("sync:acme", sync.s(customer="acme"), every=3600)
    ...     info = harbor.schedules.edit("sync:acme", cron="0 4 * * *", tz="Europe/Zurich", by="ada")
    ...     print(info.cron, info.edited, harbor.schedules.run("sync:acme", by="ada").status())
    0 4 * * * True ready
    """

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"Schedules({self._client!r})"

    # Adding and deleting -----------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        step: Scheduled,
        *,
        by: str | None = None,
        call_timeout: Duration | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """Add a schedule; its options are those of `harbor.schedule`. Any worker that serves its queue fires it.

        Adding the same one again changes nothing. WrongState if the name is taken by another one. `by`: who does it,
        for the audit; else the user of this process.
        """
        given = self._given(name, step, options)
        return self._blocking(lambda access: self._add(access, given, options, by, call_timeout), "add", call_timeout)

    async def aadd(
        self,
        name: str,
        step: Scheduled,
        *,
        by: str | None = None,
        call_timeout: Duration | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """The same, awaited."""
        given = self._given(name, step, options)
        return await self._add(self._client.awaited, given, options, by, call_timeout)

    def delete(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """Delete a schedule, and return what it was. Jobs that it has made stay.

        One that is declared in code (`declared` of what is returned) comes back when a worker of that code starts:
        remove the declaration, or pause the schedule instead.
        """
        check_name(name, "name")
        return self._blocking(lambda access: self._delete(access, name, by, call_timeout), "delete", call_timeout)

    async def adelete(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """The same, awaited."""
        check_name(name, "name")
        return await self._delete(self._client.awaited, name, by, call_timeout)

    # Looking -----------------------------------------------------------------------------------------------------

    def get(self, name: str, *, call_timeout: Duration | None = None) -> ScheduleInfo:
        """A schedule by its name; ScheduleNotFound if there is none. Blocks for one read of the store."""
        check_name(name, "name")
        return self._blocking(lambda access: self._get(access, name, call_timeout), "get", call_timeout)

    async def aget(self, name: str, *, call_timeout: Duration | None = None) -> ScheduleInfo:
        """The same, awaited."""
        check_name(name, "name")
        return await self._get(self._client.awaited, name, call_timeout)

    def list(self, *, queue: str | None = None, call_timeout: Duration | None = None) -> ScheduleListing:
        """All schedules, or those of a `queue`, in the order of their names: a value to iterate, `for` or `async for`;
        reads nothing yet. `call_timeout` is for each page that is read."""
        if queue is not None:
            check_name(queue, "queue")
        timeout = None if call_timeout is None else duration(call_timeout, "call_timeout", zero=False)
        return ScheduleListing(_client=self._client, queue=queue, call_timeout=timeout)

    def preview(self, name: str, count: int = 5, *, call_timeout: Duration | None = None) -> builtins.list[datetime]:
        """The next slots of a schedule, as if it were not paused: aware, in UTC. `count`: how many, at most 1,000."""
        _check_count(name, count)
        return self._blocking(lambda access: self._preview(access, name, count, call_timeout), "preview", call_timeout)

    async def apreview(
        self, name: str, count: int = 5, *, call_timeout: Duration | None = None
    ) -> builtins.list[datetime]:
        """The same, awaited."""
        _check_count(name, count)
        return await self._preview(self._client.awaited, name, count, call_timeout)

    # Changing ----------------------------------------------------------------------------------------------------

    def edit(
        self,
        name: str,
        *,
        by: str | None = None,
        call_timeout: Duration | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """Change options of a schedule: `cron` or `every`, `tz`, `start_at`, `end_at`, `jitter`, `catch_up`, `overlap`.

        The edit overrides what the code declares, until the declaration changes or `reset` drops the edit. `cron`
        replaces `every`, and the reverse; None removes `start_at` or `end_at`. Slots that were due before and got no
        job are missed.
        """
        _check_options(name, options)
        return self._blocking(lambda access: self._edit(access, name, options, by, call_timeout), "edit", call_timeout)

    async def aedit(
        self,
        name: str,
        *,
        by: str | None = None,
        call_timeout: Duration | None = None,
        **options: Unpack[RuleOptions],
    ) -> ScheduleInfo:
        """The same, awaited."""
        _check_options(name, options)
        return await self._edit(self._client.awaited, name, options, by, call_timeout)

    def reset(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """Drop what was edited: the schedule is again as it was declared or added. A pause stays."""
        check_name(name, "name")
        return self._blocking(lambda access: self._reset(access, name, by, call_timeout), "reset", call_timeout)

    async def areset(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """The same, awaited."""
        check_name(name, "name")
        return await self._reset(self._client.awaited, name, by, call_timeout)

    def pause(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """Let a schedule make no jobs until `resume`. Pausing twice does nothing."""
        check_name(name, "name")
        return self._blocking(lambda access: self._pause(access, name, by, call_timeout), "pause", call_timeout)

    async def apause(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """The same, awaited."""
        check_name(name, "name")
        return await self._pause(self._client.awaited, name, by, call_timeout)

    def resume(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """Let a schedule make jobs again. Slots that passed meanwhile are missed; with `catch_up="all"` they are made
        now."""
        check_name(name, "name")
        return self._blocking(lambda access: self._resume(access, name, by, call_timeout), "resume", call_timeout)

    async def aresume(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> ScheduleInfo:
        """The same, awaited."""
        check_name(name, "name")
        return await self._resume(self._client.awaited, name, by, call_timeout)

    def run(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> JobHandle[Any]:
        """Make a job of a schedule now, also while it is paused or its last job runs; the slots stay as they are.

        `ctx.slot` of the job is this moment. With `overlap="skip"` slots are skipped while it runs.
        """
        check_name(name, "name")
        return self._blocking(lambda access: self._run(access, name, by, call_timeout), "run", call_timeout)

    async def arun(self, name: str, *, by: str | None = None, call_timeout: Duration | None = None) -> JobHandle[Any]:
        """The same, awaited."""
        check_name(name, "name")
        return await self._run(self._client.awaited, name, by, call_timeout)

    # Awaited and blocking ----------------------------------------------------------------------------------------

    def _blocking(
        self,
        call: Callable[[StoreAccess], Coroutine[Any, Any, T]],
        method: str,
        call_timeout: Duration | None,
    ) -> T:
        return self._client.blocking(call, f"schedules.{method}", call_timeout)

    def _given(self, name: str, step: Scheduled, options: RuleOptions) -> Declaration:
        return declared(self._client, name, step, checked_rule(**options))

    async def _add(
        self,
        access: StoreAccess,
        given: Declaration,
        options: RuleOptions,
        by: str | None,
        call_timeout: Duration | None,
    ) -> ScheduleInfo:
        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            if schedule is not None:
                refuse_other(schedule, given)
                return None
            return Decided(created(given, now, declared=False))

        return await self._changed(access, "add", given.name, decide, by, call_timeout, dict(options))

    async def _delete(
        self, access: StoreAccess, name: str, by: str | None, call_timeout: Duration | None
    ) -> ScheduleInfo:
        budget, call = self._client.budget(access, call_timeout, "delete"), DeleteCall(self._client, name)
        found = await audited(self._client, "schedule.delete", by, budget, lambda: call.make(budget), target=name)
        return _info(found)

    async def _get(self, access: StoreAccess, name: str, call_timeout: Duration | None) -> ScheduleInfo:
        return _info(await read_schedule(self._client, name, self._client.budget(access, call_timeout, "get")))

    async def _preview(
        self, access: StoreAccess, name: str, count: int, call_timeout: Duration | None
    ) -> builtins.list[datetime]:
        budget = self._client.budget(access, call_timeout, "preview")
        schedule = readable(await read_schedule(self._client, name, budget))
        return preview_of(schedule, self._client.clock.now(), count)

    async def _edit(
        self,
        access: StoreAccess,
        name: str,
        options: RuleOptions,
        by: str | None,
        call_timeout: Duration | None,
    ) -> ScheduleInfo:
        def decide(schedule: Schedule | None, now: datetime) -> Decided:
            return Decided(with_edit(_existing(schedule, name), options, now))

        return await self._changed(access, "edit", name, decide, by, call_timeout, dict(options))

    async def _reset(
        self, access: StoreAccess, name: str, by: str | None, call_timeout: Duration | None
    ) -> ScheduleInfo:
        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name)
            return Decided(without_edit(found, now)) if found.edited else None

        return await self._changed(access, "reset", name, decide, by, call_timeout)

    async def _pause(
        self, access: StoreAccess, name: str, by: str | None, call_timeout: Duration | None
    ) -> ScheduleInfo:
        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name)
            return None if found.body.paused else Decided(paused(found))

        return await self._changed(access, "pause", name, decide, by, call_timeout)

    async def _resume(
        self, access: StoreAccess, name: str, by: str | None, call_timeout: Duration | None
    ) -> ScheduleInfo:
        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name)
            return Decided(resumed(found, now)) if found.body.paused else None

        return await self._changed(access, "resume", name, decide, by, call_timeout)

    async def _run(
        self, access: StoreAccess, name: str, by: str | None, call_timeout: Duration | None
    ) -> JobHandle[Any]:
        job: JobRecord | None = None

        def decide(schedule: Schedule | None, now: datetime) -> Decided:
            nonlocal job
            found = _existing(schedule, name)
            # Under one id, however often it is decided: a store that has the job already stores nothing.
            id, at = (new_id(to_ms(now)), now) if job is None else (job.id, job.created_at)
            job = record(name, found.definition, at, id, None, at)
            return Decided(ran(found, job.id), (job,), keeps_slots=True)

        await self._changed(access, "run", name, decide, by, call_timeout)
        assert job is not None
        self._client.emit(JobEnqueued(job, ""))
        return JobHandle(self._client, job.id)

    async def _changed(
        self,
        access: StoreAccess,
        action: str,
        name: str,
        decide: Decide,
        by: str | None,
        call_timeout: Duration | None,
        options: dict[str, Any] | None = None,
    ) -> ScheduleInfo:
        client = self._client
        budget, call = client.budget(access, call_timeout, action), ChangeCall(client, name, decide)
        given = {key: str(value) for key, value in (options or {}).items()}
        found = await audited(
            client, f"schedule.{action}", by, budget, lambda: call.make(budget), target=name, options=given
        )
        return _info(found)


def _info(found: FoundSchedule) -> ScheduleInfo:
    return info_of(found.row, found.schedule)


def _existing(schedule: Schedule | None, name: str) -> Schedule:
    if schedule is None:
        raise not_found(name)
    return schedule


def _check_count(name: str, count: int) -> None:
    check_name(name, "name")
    if at_least_one(count, "count") > MAX_PREVIEW_SLOTS:
        raise ValueError(f"count: expected at most {MAX_PREVIEW_SLOTS}, got {count}")


def _check_options(name: str, options: RuleOptions) -> None:
    check_name(name, "name")
    known = ", ".join(RuleOptions.__annotations__)
    if not options:
        raise ValueError(f"edit: expected at least one option to change, got none; they are: {known}")
    unknown = [option for option in options if option not in RuleOptions.__annotations__]
    if unknown:
        raise TypeError(f"edit: unknown option {unknown[0]!r}; expected one of: {known}")
