"""Schedules as `harbor.schedules` shows them: one as it is now, and all of them page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

import msgspec

from taskharbor.client.budget import Budget
from taskharbor.client.listing import Listing
from taskharbor.client.retries import with_retries
from taskharbor.drivers.base import Driver
from taskharbor.model.schedule import StoredSchedule
from taskharbor.schedules.body import Schedule, UnreadableBody, read_body

if TYPE_CHECKING:
    from taskharbor.client.client import Client

PAGE_SCHEDULES = 100


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now. `cron`, `every` and the other options are those in force, with an edit if there is one.

    `next_at`: its next slot, or the oldest one that is due and that no worker has served yet; None: paused, or past its
    end. `last_at` and `last_id`: the newest slot that got a job, and that job. `declared`: in code; otherwise added at
    run time. `problem`: why this program cannot read it; the fields behind `next_at` then say nothing.
    """

    name: str  # its name
    queue: str  # the queue of its jobs
    type: str = ""  # the type of its job, or of the first job of its workflow
    cron: str | None = None
    every: timedelta | None = None
    tz: str = "UTC"  # its time zone
    next_at: datetime | None = None
    last_at: datetime | None = None
    last_id: str | None = None
    paused: bool = False  # whether it makes no jobs until it is resumed
    edited: bool = False  # whether a person has changed its options
    missed: int = 0  # slots that passed without a job, since it was added
    skipped: int = 0  # slots without a job because that of an earlier one had not ended
    fired: int = 0  # slots that got a job
    declared: bool = False
    start_at: datetime | None = None  # no slot before this moment
    end_at: datetime | None = None  # no slot from this moment on
    jitter: timedelta = timedelta(0)  # how much later than its slot a job may run
    catch_up: str = "latest"  # what becomes of slots that passed while no worker ran
    overlap: str = "skip"  # what becomes of a slot while the job of an earlier one has not ended
    problem: str = ""


def info_of(row: StoredSchedule, schedule: Schedule | None = None) -> ScheduleInfo:
    """A row as a user sees it."""
    if schedule is None:
        try:
            schedule = read_body(row.body)
        except UnreadableBody as error:
            return ScheduleInfo(name=row.name, queue=row.queue, next_at=row.next_at, problem=str(error))
    body, rule = schedule.body, schedule.rule
    return ScheduleInfo(
        name=row.name,
        queue=row.queue,
        type=schedule.definition.type,
        cron=rule.cron,
        every=rule.every,
        tz=rule.tz,
        next_at=row.next_at,
        last_at=body.last_at,
        last_id=body.last_id or None,
        paused=body.paused,
        edited=schedule.edited,
        missed=body.missed,
        skipped=body.skipped,
        fired=body.fired,
        declared=body.declared,
        start_at=rule.start_at,
        end_at=rule.end_at,
        jitter=rule.jitter,
        catch_up=rule.catch_up.value,
        overlap=rule.overlap.value,
    )


class ScheduleListing(Listing[ScheduleInfo], msgspec.Struct, frozen=True, kw_only=True):
    """Schedules in the order of their names: a value to iterate, `for` or `async for`; reads nothing until then."""

    _name: ClassVar[str] = "schedules.list"
    _page_size: ClassVar[int] = PAGE_SCHEDULES

    _client: Client
    queue: str | None = None

    def __repr__(self) -> str:
        return f"ScheduleListing({'' if self.queue is None else f'queue={self.queue!r}'})"

    async def _page(
        self, budget: Budget, cursor: str | None, limit: int, whole: bool
    ) -> tuple[Sequence[ScheduleInfo], str | None]:
        async def read(driver: Driver) -> tuple[Sequence[ScheduleInfo], str | None]:
            page = await driver.schedules(queue=self.queue, cursor=cursor, limit=limit)
            return [info_of(row) for row in page.items], page.cursor

        return await with_retries(read, budget)
