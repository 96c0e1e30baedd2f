"""`harbor.schedules`: schedules at run time, for programs and for the people who run them.

These calls read and change what is in the store. What code declares with `harbor.schedule(…)` is stored when a worker
of that code starts.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.client.handle import JobHandle
from taskharbor.client.listing import ScheduleListing
from taskharbor.client.scheduled_step import Scheduled, declared
from taskharbor.client.twins import both
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import ScheduleNotFound
from taskharbor.model.events import JobEnqueued
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.times import to_ms
from taskharbor.model.validation import at_least_one
from taskharbor.schedules.body import Schedule
from taskharbor.schedules.changes import (
    created,
    paused,
    ran,
    refuse_other,
    resumed,
    with_edit,
    without_edit,
)
from taskharbor.schedules.plan import is_ahead, preview_of, record
from taskharbor.schedules.rule import RuleOptions, checked_rule
from taskharbor.store.audit import audited
from taskharbor.store.schedules import (
    ChangeCall,
    Decide,
    Decided,
    DeleteCall,
    FoundSchedule,
    ScheduleInfo,
    info_of,
    not_found,
    read_schedule,
    readable,
)

if TYPE_CHECKING:
    from typing import Unpack

    from taskharbor.store.access import StoreCall
    from taskharbor.store.session import Store

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

    __slots__ = ("_store",)

    _called = "schedules"

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Schedules({self._store.drivers!r})"

    # Adding and deleting -----------------------------------------------------------------------------------------

    @both
    async def add(
        self, call: StoreCall, name: str, step: Scheduled, *, by: str | None = None, **options: Unpack[RuleOptions]
    ) -> ScheduleInfo:
        """Add a schedule; its options are those of `harbor.schedule`. Any worker that serves its queue fires it.

        Adding the same one again changes nothing. WrongState if the name is taken by another one. `by`: who does it,
        for the audit; else the user of this process.
        """
        given = declared(self._store, name, step, checked_rule(**options))

        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            if schedule is not None:
                refuse_other(schedule, given)
                return None
            return Decided(created(given, now, declared=False))

        return await self._changed(call, given.name, decide, by, options)

    aadd = add.awaited

    @both
    async def delete(self, call: StoreCall, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Delete a schedule, and return what it was. Jobs that it has made stay.

        One that is declared in code (`declared` of what is returned) leaves a mark, `deleted`, so that no worker brings
        it back. `reset` does, and so does a changed declaration. Deleting the mark lets a worker of the code store
        the schedule anew.
        """
        check_name(name, "name")
        deletion = DeleteCall(call, name)
        return _info(await audited(call, "schedule.delete", by, deletion.send, deletion.doubt, target=name))

    adelete = delete.awaited

    # Looking -----------------------------------------------------------------------------------------------------

    @both
    async def get(self, call: StoreCall, name: str) -> ScheduleInfo:
        """A schedule by its name; ScheduleNotFound if there is none. Blocks for one read of the store."""
        check_name(name, "name")
        return _info(await read_schedule(call, name))

    aget = get.awaited

    def list(self, *, queue: str | None = None) -> ScheduleListing:
        """All schedules, or those of a `queue`, in the order of their names: a value to iterate, `for` or `async for`;
        reads nothing yet."""
        if queue is not None:
            check_name(queue, "queue")
        return ScheduleListing(_store=self._store, queue=queue)

    @both
    async def preview(self, call: StoreCall, name: str, count: int = 5) -> builtins.list[datetime]:
        """The next slots of a schedule, as if it were not paused: aware, in UTC. `count`: how many, at most 1,000."""
        check_name(name, "name")
        if at_least_one(count, "count") > MAX_PREVIEW_SLOTS:
            raise ValueError(f"count: expected at most {MAX_PREVIEW_SLOTS}, got {count}")
        return preview_of(readable(await read_schedule(call, name)), call.now(), count)

    apreview = preview.awaited

    # Changing ----------------------------------------------------------------------------------------------------

    @both
    async def edit(
        self, call: StoreCall, name: str, *, by: str | None = None, **options: Unpack[RuleOptions]
    ) -> ScheduleInfo:
        """Change options of a schedule: `cron` or `every`, `tz`, `start_at`, `end_at`, `jitter`, `catch_up`, `overlap`.

        The edit overrides what the code declares, until the declaration changes or `reset` drops the edit. `cron`
        replaces `every`, and the reverse; None removes `start_at` or `end_at`. Slots that were due before and got no
        job are missed.
        """
        _check_options(options)
        return await self._changed(
            call, name, lambda schedule, now: Decided(with_edit(_existing(schedule, name), options, now)), by, options
        )

    aedit = edit.awaited

    @both
    async def reset(self, call: StoreCall, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Drop what was edited: the schedule is again as it was declared or added, also after `delete` of a declared
        one. A pause stays."""

        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name, deleted=True)
            differs = found.edited or found.body.deleted or is_ahead(found, now)
            return Decided(without_edit(found, now)) if differs else None

        return await self._changed(call, name, decide, by)

    areset = reset.awaited

    @both
    async def pause(self, call: StoreCall, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Let a schedule make no jobs until `resume`. Pausing twice does nothing."""

        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name)
            return None if found.body.paused else Decided(paused(found))

        return await self._changed(call, name, decide, by)

    apause = pause.awaited

    @both
    async def resume(self, call: StoreCall, name: str, *, by: str | None = None) -> ScheduleInfo:
        """Let a schedule make jobs again. Slots that passed meanwhile are missed; with `catch_up="all"` they are made
        now."""

        def decide(schedule: Schedule | None, now: datetime) -> Decided | None:
            found = _existing(schedule, name)
            return Decided(resumed(found, now)) if found.body.paused or is_ahead(found, now) else None

        return await self._changed(call, name, decide, by)

    aresume = resume.awaited

    @both
    async def run(self, call: StoreCall, name: str, *, by: str | None = None) -> JobHandle[Any]:
        """Make a job of a schedule now, also while it is paused or its last job runs; the slots stay as they are.

        `ctx.slot` of the job is this moment. With `overlap="skip"` slots are skipped while it runs.
        """
        job: JobRecord | None = None

        def decide(schedule: Schedule | None, now: datetime) -> Decided:
            nonlocal job
            found = _existing(schedule, name)
            # Under one id, however often it is decided: a store that has the job already stores nothing.
            id, at = (new_id(to_ms(now)), now) if job is None else (job.id, job.created_at)
            job = record(name, found.definition, at, id, None, at)
            return Decided(ran(found, job.id), (job,), keeps_slots=True)

        await self._changed(call, name, decide, by)
        assert job is not None
        self._store.emit(JobEnqueued(job, ""))
        return JobHandle(self._store, job.id)

    arun = run.awaited

    async def _changed(
        self, call: StoreCall, name: str, decide: Decide, by: str | None, options: Mapping[str, Any] | None = None
    ) -> ScheduleInfo:
        check_name(name, "name")
        given = {key: str(value) for key, value in (options or {}).items()}
        change = ChangeCall(call, name, decide)
        action = f"schedule.{call.what}"
        return _info(await audited(call, action, by, change.send, change.doubt, target=name, options=given))


def _info(found: FoundSchedule) -> ScheduleInfo:
    return info_of(found.row, found.schedule)


def _existing(schedule: Schedule | None, name: str, *, deleted: bool = False) -> Schedule:
    """`deleted`: also one of which only the mark of its deletion is left."""
    if schedule is None:
        raise not_found(name)
    if schedule.body.deleted and not deleted:
        raise ScheduleNotFound(
            f"schedule {name!r} was deleted, although code declares it; harbor.schedules.reset({name!r}) brings it back"
        )
    return schedule


def _check_options(options: RuleOptions) -> None:
    known = ", ".join(RuleOptions.__annotations__)
    if not options:
        raise ValueError(f"edit: expected at least one option to change, got none; they are: {known}")
    unknown = [option for option in options if option not in RuleOptions.__annotations__]
    if unknown:
        raise TypeError(f"edit: unknown option {unknown[0]!r}; expected one of: {known}")
