"""What is read of a job's surroundings; `store/diagnose.py` says what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import MAX_NEXT, read_heads
from taskharbor.model.errors import WrongState
from taskharbor.model.job import EPOCH, JobInfo, JobRecord, State, WorkerInfo
from taskharbor.model.memo import sleep_of
from taskharbor.store.ids import find_job
from taskharbor.store.jobs import read_records
from taskharbor.store.pages import read_items
from taskharbor.store.text import command
from taskharbor.tasks.flow_metadata import JOIN_TYPE

MAX_DEPENDENCIES = 5  # of one job that are read
PAGE_JOBS = 200
PAGE_FLOW_JOBS = 500
MAX_FLOW_JOBS = 10_000  # of a flow that are read to find those that wait for a job
MAX_QUEUES = 25  # of one list whose pause is looked up
MAX_GROUPS = 8  # of one list whose running jobs are counted
MAX_RUNNING = 50  # jobs of one group
SINCE_EVER = EPOCH + timedelta(days=1)  # passed as `now`, it makes `workers` return every worker on record
TAKEN = (State.INFLIGHT, State.DONE, State.DLQ)  # states that only a worker moves a job to
WAITING = (State.READY, State.SCHEDULED, State.BLOCKED)


@dataclass(frozen=True)
class Situation:
    """What was read from the store about one job at one moment."""

    info: JobInfo
    now: datetime
    asleep: tuple[str, datetime] | None = field(default=None, repr=False)  # its step, and until when
    paused: bool = False
    before: int | None = None  # how many ready jobs of its queue come first, up to MAX_NEXT; None: not known
    workers: tuple[WorkerInfo, ...] = ()  # alive, and serving its queue
    others: tuple[WorkerInfo, ...] = ()  # alive, and serving other queues
    last: WorkerInfo | None = None  # the worker that served its queue last, if none does now
    is_new: bool = False  # no worker ever used this store
    place: str = ""  # the store's address, redacted
    app: str = ""  # --app
    declared: frozenset[str] | None = None  # the types of its tasks
    dependencies: tuple[JobInfo, ...] = ()
    gone: tuple[str, ...] = ()  # dependencies without a record
    group_running: tuple[JobInfo, ...] = ()
    group_limit: int | None = 1  # None: not known
    dependents: int = 0  # jobs of its flow that wait for it, if it is dead
    all_read: bool = True  # whether all of them were counted

    @property
    def is_next(self) -> bool:
        """Whether it is among the next that workers get: then its group has room, whatever its limit is."""
        return self.before is not None and self.before < MAX_NEXT

    @property
    def is_undeclared(self) -> bool:
        """Whether no worker of the app can run the job."""
        return self.declared is not None and self.info.job.type not in {*self.declared, JOIN_TYPE}


@dataclass(frozen=True)
class ListSituation:
    """What holds up the jobs of one list."""

    now: datetime
    paused: frozenset[str] = frozenset()
    workers: tuple[WorkerInfo, ...] = ()
    full: Mapping[tuple[str, str], tuple[JobInfo, ...]] = field(default_factory=dict)  # by queue and group: its jobs
    declared: frozenset[str] | None = None

    def of(self, info: JobInfo) -> Situation:
        """What is known about one of the jobs. Whatever a worker took before counts as declared."""
        job = info.job
        return Situation(
            info,
            self.now,
            paused=job.queue in self.paused,
            workers=tuple(worker for worker in self.workers if job.queue in worker.queues),
            declared=None if job.deliveries else self.declared,
            group_running=self.full.get((job.queue, job.group or ""), ()),
        )


# Reading ---------------------------------------------------------------------------------------------------------


async def read_situation(
    driver: Driver, id: str, now: datetime, *, place: str = "", app: str = "", declared: frozenset[str] | None = None
) -> Situation:
    """Read everything that `reasons` needs."""
    info = await find_job(driver, id, now)
    job = info.job
    if info.state.terminal or info.state is State.INFLIGHT:
        return Situation(info, now)
    waiting_for = info.waiting_for[:MAX_DEPENDENCIES]
    dependencies = tuple(await read_records(driver, waiting_for, now))
    ids = {each.job.id for each in dependencies}
    group: dict[str, Any] = {} if job.group is None else await _read_group(driver, job, now)
    alive = await driver.workers(now)
    known = [] if any(job.queue in worker.queues for worker in alive) else await driver.workers(SINCE_EVER)
    before = [worker for worker in known if job.queue in worker.queues]
    return Situation(
        info,
        now,
        asleep=sleep_of(await driver.steps(job.id), now) if job.has_memos else None,
        paused=await driver.is_paused(job.queue),
        before=await _read_before(driver, job, now) if info.state is State.READY else None,
        workers=tuple(worker for worker in alive if job.queue in worker.queues),
        others=tuple(worker for worker in alive if job.queue not in worker.queues),
        last=max(before, key=lambda worker: worker.stopped_at or worker.seen_at, default=None),
        is_new=not (alive or known or job.deliveries or await _was_used(driver, now)),
        place=place,
        app=app,
        declared=declared,
        dependencies=dependencies,
        gone=tuple(id for id in waiting_for if id not in ids),
        **group,
    )


async def _read_before(driver: Driver, job: JobRecord, now: datetime) -> int | None:
    """How many jobs of its own queue workers get before a ready job; None if that is not known."""
    head = (await read_heads(driver, [job.queue], now, MAX_NEXT))[job.queue]
    if job.id in head.next:
        return head.next.index(job.id)
    return MAX_NEXT if len(head.next) == MAX_NEXT else None


async def _was_used(driver: Driver, now: datetime) -> bool:
    """Whether a worker ever took a job of this store, as far as one call for each state can tell."""
    for state in TAKEN:
        page = await driver.list(state=state, limit=1, now=now, payloads=False)
        if page.items or page.cursor is not None:
            return True
    return False


async def _read_group(driver: Driver, job: JobRecord, now: datetime) -> dict[str, Any]:
    """How full a job's group is, as fields of its Situation."""
    group: dict[str, Any] = {"queue": job.queue, "group": job.group, "payloads": False, "now": now}
    page = await driver.list(limit=PAGE_JOBS, **group)
    # The first stored job with a limit sets the group's; drivers do not report it otherwise. A page that is not
    # the last proves nothing of what it does not hold.
    set_by = next((each.job.group_limit for each in page.items if each.job.group_limit), job.group_limit)
    running = await driver.list(state=State.INFLIGHT, limit=PAGE_JOBS, **group)
    return {
        "group_limit": set_by or (1 if page.cursor is None else None),
        "group_running": running.items,
    }


async def read_dead(
    driver: Driver, typed: str, now: datetime, *, app: str = "", declared: frozenset[str] | None = None
) -> Situation:
    """Read a job and everything that `effects` needs; WrongState if it is not dead."""
    info = await find_job(driver, typed, now)
    if info.state is not State.DLQ:
        job = info.job
        raise WrongState(f"job {job.id} is {info.state}, not dead; `{command('inspect', job.id)}` shows it")
    return await read_around_dead(driver, info, now, app=app, declared=declared)


async def read_around_dead(
    driver: Driver, info: JobInfo, now: datetime, *, app: str = "", declared: frozenset[str] | None = None
) -> Situation:
    """Read what else `effects` needs about a job that was read, and was dead then."""
    job = info.job
    flow: list[JobInfo] = []
    cursor: str | None = None
    if job.flow_id is not None:
        flow, cursor = await read_items(
            driver.list, page=PAGE_FLOW_JOBS, most=MAX_FLOW_JOBS, flow_id=job.flow_id, now=now, payloads=False
        )
    return Situation(
        info,
        now,
        paused=await driver.is_paused(job.queue),
        workers=tuple(worker for worker in await driver.workers(now) if job.queue in worker.queues),
        app=app,
        declared=declared,
        dependencies=await _first_open(driver, job.depends_on, now),
        dependents=sum(each.state is State.BLOCKED and job.id in each.job.depends_on for each in flow),
        all_read=cursor is None,
    )


async def _first_open(driver: Driver, ids: tuple[str, ...], now: datetime) -> tuple[JobInfo, ...]:
    """The first of these jobs that is not done; one without a record is not waited for."""
    for id in ids:
        jobs = await read_records(driver, [id], now)
        if jobs and jobs[0].state is not State.DONE:
            return tuple(jobs)
    return ()


async def undeclared_types(driver: Driver, declared: frozenset[str] | None, now: datetime) -> list[str]:
    """The types of waiting jobs that no worker of an application can run, of the first ones. None: it is not known
    what the application declares."""
    if declared is None:
        return []
    types: set[str] = set()
    for state in (State.READY, State.SCHEDULED):
        page = await driver.list(state=state, limit=PAGE_JOBS, now=now, payloads=False)
        types.update(info.job.type for info in page.items)
    return sorted(types - declared - {JOIN_TYPE})


async def read_list_situation(
    driver: Driver,
    now: datetime,
    jobs: Sequence[JobInfo],
    declared: frozenset[str] | None = None,
    *,
    are_next: bool = False,
) -> ListSituation:
    """Read what `word_for` needs for these jobs: at most 34 calls, and none if no job waits.

    `are_next`: `heads` returned them, so that their groups have room.
    """
    waiting = [info for info in jobs if info.state in WAITING]
    if not waiting:
        return ListSituation(now, declared=declared)
    queues = list(dict.fromkeys(info.job.queue for info in waiting))[:MAX_QUEUES]
    paused = frozenset([queue for queue in queues if await driver.is_paused(queue)])
    full = await _full_groups(driver, now, [] if are_next else waiting)
    return ListSituation(now, paused, tuple(await driver.workers(now)), full, declared)


async def _full_groups(
    driver: Driver, now: datetime, jobs: Iterable[JobInfo]
) -> dict[tuple[str, str], tuple[JobInfo, ...]]:
    limits: dict[tuple[str, str], int] = {}
    for info in jobs:
        if info.state is State.READY and info.job.group is not None:
            limits.setdefault((info.job.queue, info.job.group), info.job.group_limit or 1)
    full = {}
    for (queue, group), limit in list(limits.items())[:MAX_GROUPS]:
        most = min(limit, MAX_RUNNING)
        page = await driver.list(queue=queue, group=group, state=State.INFLIGHT, limit=most, now=now, payloads=False)
        if len(page.items) >= limit:
            full[queue, group] = tuple(page.items)
    return full
