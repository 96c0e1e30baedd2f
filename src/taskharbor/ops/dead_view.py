"""A dead job as an operator sees it before a requeue: what that would do, and what would hold the job up then.

`read_dead` reads the store, `effects` is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound, WrongState
from taskharbor.model.job import JobInfo, State
from taskharbor.ops.ids import find_job
from taskharbor.tasks.flow_metadata import JOIN_TYPE

PAGE_JOBS = 500
MAX_FLOW_JOBS = 10_000  # of a flow that are read to find those that wait for the job


@dataclass(frozen=True)
class DeadJob:
    """A dead job and its surroundings. `waiting`: how many jobs wait for it; `all_read`: whether all were counted."""

    info: JobInfo
    paused: bool = False
    workers: int = 0
    waiting: int = 0
    all_read: bool = True
    open_dependencies: tuple[str, ...] = ()
    app: str = ""
    declared: frozenset[str] | None = None


@dataclass(frozen=True)
class Effect:
    """One thing that a requeue would do, or that would hold the job up then. `code` is for scripts; `hint` is a command
    that helps."""

    code: str
    text: str
    hint: str = ""


async def read_dead(
    driver: Driver, typed: str, now: datetime, *, app: str = "", declared: frozenset[str] | None = None
) -> DeadJob:
    """Read a dead job; WrongState for one that is not dead."""
    info = await find_job(driver, typed, now)
    job = info.job
    if info.state is not State.DLQ:
        raise WrongState(f"job {job.id} is {info.state}, not dead; `taskharbor inspect {job.id}` shows it")
    waiting, all_read = (0, True) if job.flow_id is None else await _waiting(driver, job.flow_id, job.id, now)
    return DeadJob(
        info,
        paused=await driver.is_paused(job.queue),
        workers=sum(job.queue in worker.queues for worker in await driver.workers(now)),
        waiting=waiting,
        all_read=all_read,
        open_dependencies=await _open(driver, job.depends_on, now),
        app=app,
        declared=declared,
    )


def effects(dead: DeadJob) -> list[Effect]:
    """What `dlq requeue` would do with the job, and what would hold it up then."""
    job = dead.info.job
    found = [Effect("attempts", _attempts(dead.info))]
    if dead.waiting:
        number = f"{dead.waiting}{'' if dead.all_read else ' or more'}"
        jobs = "job of its flow waits" if number == "1" else "jobs of its flow wait"
        then = "goes" if number == "1" else "go"
        found.append(Effect("flow", f"{number} {jobs} for it, and {then} on when it is done"))
    elif job.flow_id is not None:
        found.append(Effect("flow", "it belongs to a flow, in which no job waits for it"))
    if dead.open_dependencies:
        found.append(Effect("blocked", f"it waits for job {dead.open_dependencies[0]} first, which is not done"))
    if dead.paused:
        found.append(
            Effect("paused", f"its queue {job.queue} is paused: it waits", f"taskharbor queue resume {job.queue}")
        )
    if dead.declared is not None and job.type not in dead.declared and job.type != JOIN_TYPE:
        found.append(Effect("unknown_type", f"{dead.app} declares no task {job.type!r}: its workers give the job back"))
    found.append(_workers(dead))
    return found


def _attempts(info: JobInfo) -> str:
    job = info.job
    if not job.max_attempts:
        return "it gets all its attempts again"
    left = max(job.max_attempts - job.attempts, 1)
    kept = "1 more attempt" if left == 1 else f"{left} more attempts"
    all_of_them = "its 1 attempt" if job.max_attempts == 1 else f"all {job.max_attempts} attempts"
    return f"it gets {all_of_them} again{'' if left == job.max_attempts else f'; with --keep-attempts {kept}'}"


def _workers(dead: DeadJob) -> Effect:
    queue = dead.info.job.queue
    if not dead.workers:
        return Effect("no_worker", f"no worker serves its queue {queue} now: it waits for one")
    number = "1 worker serves" if dead.workers == 1 else f"{dead.workers} workers serve"
    return Effect("served", f"{number} its queue {queue}")


def next_commands(dead: DeadJob) -> list[str]:
    """What an operator would type next."""
    job = dead.info.job
    alike = f"taskharbor dlq requeue --fingerprint {job.fingerprint} --canary 5 --dry-run"
    commands = [f"taskharbor dlq requeue {job.id}", f"taskharbor dlq edit {job.id} --requeue"]
    return [*commands, *([alike] if job.fingerprint else [])]


async def _waiting(driver: Driver, flow_id: str, id: str, now: datetime) -> tuple[int, bool]:
    """How many jobs of a flow wait for this one, and whether all of the flow was read."""
    cursor: str | None = None
    waiting = read = 0
    while True:
        page = await driver.list(flow_id=flow_id, cursor=cursor, limit=PAGE_JOBS, now=now, payloads=False)
        waiting += sum(info.state is State.BLOCKED and id in info.job.depends_on for info in page.items)
        read, cursor = read + len(page.items), page.cursor
        if cursor is None or read >= MAX_FLOW_JOBS:
            return waiting, cursor is None


async def _open(driver: Driver, ids: tuple[str, ...], now: datetime) -> tuple[str, ...]:
    """The first of these jobs that is not done; one without a record is not waited for."""
    for id in ids:
        try:
            info = await driver.inspect(id, now)
        except JobNotFound:
            continue
        if info.state is not State.DONE:
            return (id,)
    return ()
