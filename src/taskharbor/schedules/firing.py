"""Firing: look for due schedules, plan each, and make the changes; of several workers the first one makes them.

    look ──► due rows ──► those that this program may fire ──► which jobs run? ──► plan ──► change ──► report
                       └► others: passed by a cursor, and looked at again a minute later

It holds no state that matters: a process that dies at any point leaves a row that is still due, or one that moved
together with its job. A change whose reply was lost is looked up by its revision, and reported if it was made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from taskharbor.drivers.base import Driver
from taskharbor.drivers.cursor import encode_due
from taskharbor.model.clock import Clock
from taskharbor.model.errors import InvalidJob, JobNotFound
from taskharbor.model.events import (
    JobEnqueued,
    Observers,
    ScheduleChanged,
    ScheduleFired,
    ScheduleMissed,
    ScheduleRefused,
    ScheduleSkipped,
)
from taskharbor.model.job import JobInfo, State
from taskharbor.model.schedule import ScheduleChange, StoredSchedule
from taskharbor.schedules.body import Schedule, UnreadableBody, cannot_follow, read_body
from taskharbor.schedules.changes import Declaration, put_right
from taskharbor.schedules.declare import declare_missing
from taskharbor.schedules.plan import FiringPlan, looks_at, plan, stored

PAGE_ROWS = 100
PASSED_FOR_S = 60.0  # until rows that this program may not fire, or that others moved, are looked at again
INSPECTED_AT_ONCE = 20
MAX_CALL_JOBS = 1_000  # of one call that changes several rows
MAX_REFUSED_KEPT = 10_000


class Round(NamedTuple):
    """How many jobs one round stored, whether there is any schedule, and when the next slot comes."""

    fired: int
    exists: bool
    next_at: datetime | None


class Due(NamedTuple):
    """A due schedule that this program may fire."""

    row: StoredSchedule
    schedule: Schedule


class ScheduleRunner:
    """Fires schedules with one driver. `queues`: those whose added schedules it fires; `declared`: what its code
    declares, wherever those go; `worker`: how events name it."""

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        observers: Observers,
        *,
        worker: str,
        queues: Collection[str],
        declared: Mapping[str, Declaration],
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._observers = observers
        self._worker = worker
        self._served = frozenset(queues)
        self._declared = declared
        self._is_stopping = is_stopping
        self._unsure: list[FiringPlan] = []  # changes whose reply was lost
        self._passed: str | None = None  # the cursor behind the rows at the head that are not for this program
        self._passed_until = 0.0
        self._checked: str | None = None  # the cursor behind the rows that were compared with the clock
        self._checked_until = 0.0
        self._moved_to: frozenset[str] = frozenset()  # queues where rows that this code declares were seen
        self._refused: dict[str, str] = {}  # the revision that this program cannot fire, by name

    async def fire_due(self) -> Round:
        """Fire everything that is due."""
        await self._look_up_unsure()
        now, fired = self._clock.now(), 0
        moments = list[datetime]()
        if self._clock.monotonic() >= self._passed_until:
            self._moved_to = await self._queues_of_declared(now)
            self._passed, self._passed_until = None, self._clock.monotonic() + PASSED_FOR_S
        queues = self._queues()
        cursor, at_head = self._passed, True
        while True:
            page = await self._driver.due_schedules(queues, now, cursor=cursor, limit=PAGE_ROWS)
            due = list[Due]()
            for row in page.items:
                found = self._read(row)
                if found is not None:
                    due.append(found)
                    at_head = False
                elif at_head and row.next_at is not None:
                    self._passed = encode_due(row.next_at, row.name)
            for made in await self._fire(due, now):
                fired += len(made.fired)
                if made.next_at is not None:
                    moments.append(made.next_at)
            cursor = page.cursor
            if cursor is None or self._is_stopping():
                break
        if page.upcoming is not None:
            moments.append(page.upcoming)
        exists = bool(moments or page.items) or self._passed is not None
        if exists and self._clock.monotonic() >= self._checked_until:
            page = await self._driver.schedules(cursor=self._checked, limit=PAGE_ROWS)
            moments += await self._put_right(page.items, now)
            self._checked, self._checked_until = page.cursor, self._clock.monotonic() + PASSED_FOR_S
        return Round(fired, exists, min(moments, default=None))

    async def _put_right(self, rows: Sequence[StoredSchedule], now: datetime) -> list[datetime]:
        """Begin anew those that lie ahead of the clock, which no look for due ones finds; return when they come."""
        changes = list[ScheduleChange]()
        for row in rows:
            due = self._read(row)
            after = None if due is None else put_right(due.schedule, now)
            if after is not None:
                changes.append(ScheduleChange(name=row.name, expect=row.revision, to=stored(row.name, after)))
        answers = await self._driver.change_schedules(changes, now) if changes else []
        made = [each.to for each, is_made in zip(changes, answers, strict=True) if is_made and each.to is not None]
        for to in made:
            self._observers.emit(ScheduleChanged(self._worker, to.name, to.queue, False))
        return [to.next_at for to in made if to.next_at is not None]

    def _queues(self) -> list[str]:
        others = {each.definition.queue for each in self._declared.values()}
        return sorted(self._served | others | self._moved_to)

    async def _queues_of_declared(self, now: datetime) -> frozenset[str]:
        """The queues of the rows that this code declares: another version of the code may have moved them. Rows that
        are missing are stored: the store was restored, or lost them."""
        names, found = sorted(self._declared), dict[str, str]()
        for start in range(0, len(names), PAGE_ROWS):
            page = await self._driver.schedules(names=names[start : start + PAGE_ROWS], limit=PAGE_ROWS)
            found.update((row.name, row.queue) for row in page.items)
            await self._put_right(page.items, now)
        missing = [self._declared[name] for name in names if name not in found]
        if missing:
            await declare_missing(self._driver, missing, self._clock, self._observers, self._worker)
        return frozenset(found.values())

    def _read(self, row: StoredSchedule) -> Due | None:
        """A due row, if this program may fire it and can read it."""
        if self._refused.get(row.name) == row.revision:
            return None
        try:
            schedule = read_body(row.body)
        except UnreadableBody as error:
            if row.queue in self._served or row.name in self._declared:
                self._refuse(row, str(error))
            return None
        may_fire = row.name in self._declared if schedule.body.declared else row.queue in self._served
        return Due(row, schedule) if may_fire else None

    def _refuse(self, row: StoredSchedule, reason: str) -> None:
        if len(self._refused) >= MAX_REFUSED_KEPT:
            self._refused.clear()
        self._refused[row.name] = row.revision
        self._observers.emit(ScheduleRefused(self._worker, row.name, row.queue, reason))

    # Firing ------------------------------------------------------------------------------------------------------

    async def _fire(self, due: Sequence[Due], now: datetime) -> list[FiringPlan]:
        """Fire schedules, each until it is not behind any more; return the changes that were made."""
        made = list[FiringPlan]()
        while due and not self._is_stopping():
            plans = await self._plans(due, now)
            done = list[FiringPlan]()
            for batch in _batches(plans):
                done += await self._make(batch, now)
            made += done
            await asyncio.sleep(0)  # a step of many slots takes a while, and the worker has handlers to run
            due = [Due(each.change.to, each.schedule) for each in done if each.behind and each.change.to is not None]
        return made

    async def _plans(self, due: Sequence[Due], now: datetime) -> list[FiringPlan]:
        found = list[FiringPlan]()
        for start in range(0, len(due), INSPECTED_AT_ONCE):
            some = list[tuple[Due, tuple[str, ...]]]()
            for each in due[start : start + INSPECTED_AT_ONCE]:
                try:
                    some.append((each, looks_at(each.schedule)))
                except Exception as error:  # one row never keeps the others from being served
                    self._refuse(each.row, cannot_follow(error))
            asked = [still_running(self._driver, ids, now) for _, ids in some]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for (each, _), running in zip(some, answers, strict=True):
                if isinstance(running, BaseException):
                    raise running
                try:
                    found.append(plan(each.row, each.schedule, now, running=running))
                except Exception as error:
                    self._refuse(each.row, cannot_follow(error))
        return found

    async def _make(self, plans: Sequence[FiringPlan], now: datetime) -> list[FiringPlan]:
        """Make changes in one call; return those that were made here."""
        try:
            answers = await self._driver.change_schedules([each.change for each in plans], now)
        except InvalidJob as error:
            if len(plans) > 1:  # one of them spoils the call for all
                return [made for each in plans for made in await self._make([each], now)]
            self._refuse_job(plans[0], error)
            return []
        except BaseException:
            self._unsure += plans
            raise
        made = [each for each, is_made in zip(plans, answers, strict=True) if is_made]
        for each in made:
            self._report(each, now)
        return made

    def _refuse_job(self, refused: FiringPlan, error: InvalidJob) -> None:
        change = refused.change
        assert change.to is not None
        assert change.expect is not None
        self._refuse(msgspec.structs.replace(change.to, revision=change.expect), f"its job cannot be stored: {error}")

    async def _look_up_unsure(self) -> None:
        """Report the changes that were made although their reply was lost. The others are planned anew."""
        while self._unsure:
            some = self._unsure[:PAGE_ROWS]
            page = await self._driver.schedules(names=[each.change.name for each in some], limit=PAGE_ROWS)
            stored = {row.revision for row in page.items}
            del self._unsure[: len(some)]
            for each in some:
                if each.change.to is not None and each.change.to.revision in stored:
                    self._report(each, each.planned_at)

    def _report(self, made: FiringPlan, now: datetime) -> None:
        name, queue, emit = made.change.name, made.schedule.definition.queue, self._observers.emit
        if self._observers.wants(ScheduleFired):
            for slot, job in zip(made.fired, made.jobs, strict=True):
                late = round((now - slot).total_seconds(), 3)
                emit(ScheduleFired(self._worker, name, queue, slot, job.id, late))
        if self._observers.wants(JobEnqueued):
            for job in made.jobs:
                emit(JobEnqueued(job, self._worker))
        if made.missed:
            emit(ScheduleMissed(self._worker, name, queue, made.missed))
        if made.skipped:
            emit(ScheduleSkipped(self._worker, name, queue, made.skipped))


def _batches(plans: Sequence[FiringPlan]) -> Iterator[list[FiringPlan]]:
    """Plans for one call each: not too many jobs together."""
    batch, jobs = list[FiringPlan](), 0
    for each in plans:
        if batch and jobs + len(each.jobs) > MAX_CALL_JOBS:
            yield batch
            batch, jobs = [], 0
        batch.append(each)
        jobs += len(each.jobs)
    if batch:
        yield batch


MAX_HANDOVERS = 200
"""How far a job is followed to those that took its place: more than workflows nest."""

_FAILED = (State.DLQ, State.CANCELLED)
_GOING = (State.READY, State.INFLIGHT, State.SCHEDULED)


async def still_running(driver: Driver, ids: Sequence[str], now: datetime) -> Sequence[str]:
    """Those of these jobs that may not have ended, nor the workflow that took the place of one; empty if all have.

    A job that waits for a retry has not ended. One that is dead has, and so has one whose record is gone. Those behind
    the first one that runs are not looked at.
    """
    for place, id in enumerate(ids):
        if await _is_running(driver, id, now):
            return ids[place:]
    return ()


async def _is_running(driver: Driver, id: str, now: datetime) -> bool:
    try:
        own = last = await driver.inspect(id, now)
        for _ in range(MAX_HANDOVERS):
            if last.job.handed_to is None:
                break
            last = await driver.inspect(last.job.handed_to, now)
    except JobNotFound:
        return False
    if last.state.terminal:
        return False
    if last.job.flow_id is None or last.job.flow_id == own.job.flow_id:
        return True
    return await _goes_on(driver, last, now)


async def _goes_on(driver: Driver, last: JobInfo, now: datetime) -> bool:
    """Whether a workflow that has not reached its end still runs. If a job of it is dead, those that wait for that one
    are blocked for ever; others may run."""
    flow_id = last.job.flow_id
    for state in _FAILED:
        if (await driver.list(flow_id=flow_id, state=state, limit=1, now=now)).items:
            break
    else:
        return True
    for state in _GOING:
        if (await driver.list(flow_id=flow_id, state=state, limit=1, now=now)).items:
            return True
    return False
