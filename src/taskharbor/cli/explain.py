"""Why a job is not running: a pure function of what was read about it and around it.

`look` reads, `reasons` judges. The first reason is the one that counts now; those behind it would count next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from taskharbor.cli.reveal import HIDDEN
from taskharbor.cli.text import first_line, one_line
from taskharbor.cli.when import both, length, relative
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo, State, WorkerInfo

NAMED = 5  # jobs that are named one by one
LOOKED_AT = 200


@dataclass(frozen=True)
class Reason:
    """One thing that keeps a job from running. `code` is for scripts, `hint` a command that helps."""

    code: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Situation:
    """What was read at one moment."""

    info: JobInfo
    now: datetime
    paused: bool = False
    ready: int = 0  # jobs of its queue that are due, this one among them
    workers: tuple[WorkerInfo, ...] = ()
    dependencies: tuple[JobInfo, ...] = ()
    gone: tuple[str, ...] = ()  # dependencies without a record
    group_running: tuple[JobInfo, ...] = ()
    group_limit: int = 1


async def look(driver: Driver, id: str, now: datetime) -> Situation:
    """Read what is needed to judge."""
    info = await driver.inspect(id, now)
    job = info.job
    if info.state.terminal or info.state is State.INFLIGHT:
        return Situation(info, now)
    dependencies, gone = [], []
    for dependency in info.waiting_for[:NAMED]:
        try:
            dependencies.append(await driver.inspect(dependency, now))
        except JobNotFound:
            gone.append(dependency)
    running: tuple[JobInfo, ...] = ()
    limit = 1
    if job.group is not None:
        page = await driver.list(queue=job.queue, group=job.group, limit=LOOKED_AT, now=now)
        # The first stored job with a limit sets the group's; a store does not tell it otherwise.
        limit = next((each.job.group_limit for each in page.items if each.job.group_limit), job.group_limit or 1)
        held = await driver.list(queue=job.queue, group=job.group, state=State.INFLIGHT, limit=LOOKED_AT, now=now)
        running = held.items
    return Situation(
        info,
        now,
        paused=await driver.is_paused(job.queue),
        ready=(await driver.counts(now)).get(job.queue, {}).get("ready", 0),
        workers=tuple(worker for worker in await driver.workers(now) if job.queue in worker.queues),
        dependencies=tuple(dependencies),
        gone=tuple(gone),
        group_running=running,
        group_limit=limit,
    )


def reasons(seen: Situation) -> list[Reason]:
    """What keeps the job from running, the nearest first; never empty."""
    ended = _ended(seen)
    if ended is not None:
        return [ended]
    found = [*_waiting(seen), *_held_up(seen), *_unserved(seen)]
    if found:
        return found
    others = seen.ready - 1
    before = f"{others} other job{'s' if others != 1 else ''} of its queue {'are' if others != 1 else 'is'} due as well"
    return [Reason("next", f"nothing holds it up: a worker takes it when its turn comes; {before}")]


def _ended(seen: Situation) -> Reason | None:
    info, job, now = seen.info, seen.info.job, seen.now
    if info.state is State.INFLIGHT:
        lease = relative(info.lease_expires_at, now)
        return Reason(
            "leased", f"it runs: worker {one_line(info.worker) or '(unnamed)'} holds its lease, which ends {lease}"
        )
    if info.state is State.DONE:
        then = f"; job {job.handed_to} took its place" if job.handed_to else ""
        return Reason("done", f"it is done since {both(job.finished_at, now)}{then}")
    why = HIDDEN.why(job) or "no reason was recorded"
    if info.state is State.DLQ:
        text = f"it is dead since {both(job.finished_at, now)}: {why}"
        return Reason("dlq", text, f"taskharbor dlq requeue {job.id}")
    if info.state is State.CANCELLED:
        text = f"it was cancelled {relative(job.finished_at, now)}: {why}"
        return Reason("cancelled", text, f"taskharbor job retry {job.id}")
    return None


def _waiting(seen: Situation) -> list[Reason]:
    """What the job's own record makes it wait for."""
    info, job, now = seen.info, seen.info.job, seen.now
    if info.state is State.BLOCKED:
        return _blocked(seen)
    if info.state is not State.SCHEDULED:
        return []
    due = both(job.run_at, now)
    hint = f"taskharbor job retry {job.id}"
    if job.attempts:
        why = first_line(HIDDEN.errors(job)[1]) or "no error was recorded"
        times = f"{job.attempts} of {job.max_attempts} times" if job.max_attempts else _count(job.attempts, "time")
        text = f"it failed {times} and is tried again {due}; the last error was: {why}"
        return [Reason("retry_not_due", text, hint)]
    if job.deliveries:
        text = (
            f"a worker had it and gave it back until {due}: its handler snoozed it, or no worker that took it has a "
            f"handler for {one_line(job.type)!r}"
        )
        return [Reason("given_back", text, hint)]
    return [Reason("not_due", f"it is not due before {due}", hint)]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _blocked(seen: Situation) -> list[Reason]:
    found = []
    for other in seen.dependencies:
        name = f"job {other.job.id} ({one_line(other.job.type)})"
        if other.state is State.DLQ:
            found.append(
                Reason("blocked_by_dead", f"{name} before it is dead", f"taskharbor dlq requeue {other.job.id}")
            )
        elif other.state is State.CANCELLED:
            text = f"{name} before it was cancelled"
            found.append(Reason("blocked_by_cancelled", text, f"taskharbor job retry {other.job.id}"))
        else:
            found.append(Reason("blocked", f"it waits for {name}, which is {other.state}"))
    found += [Reason("blocked", f"it waits for job {id}, of which there is no record") for id in seen.gone]
    left = len(seen.info.waiting_for) - len(found)
    if left > 0:
        found.append(Reason("blocked", f"and for {left} more jobs"))
    return sorted(found, key=lambda reason: reason.code == "blocked") or [Reason("blocked", "it waits for other jobs")]


def _held_up(seen: Situation) -> list[Reason]:
    """What holds up a job that is due."""
    job, found = seen.info.job, []
    queue = one_line(job.queue)
    if seen.paused:
        found.append(Reason("paused", f"its queue {queue!r} is paused", f"taskharbor queue resume {queue}"))
    if seen.info.state is State.READY and len(seen.group_running) >= seen.group_limit:
        group = one_line(job.group or "")
        who = ", ".join(each.job.id for each in seen.group_running[:NAMED])
        number = f"{len(seen.group_running)} of {seen.group_limit}"
        found.append(Reason("group_full", f"its group {group!r} is full: {number} running ({who})"))
    return found


def _unserved(seen: Situation) -> list[Reason]:
    queue = one_line(seen.info.job.queue)
    if not seen.workers:
        text = f"no worker that was heard in the last minute serves its queue {queue!r}"
        return [Reason("no_worker", text, f"taskharbor worker run --queues {queue}")]
    free = [worker for worker in seen.workers if not worker.concurrency or worker.running < worker.concurrency]
    if seen.info.state is State.READY and not free:
        slots = sum(worker.running for worker in seen.workers)
        oldest = max((seen.now - worker.seen_at for worker in seen.workers), default=None)
        ago = "" if oldest is None else f", as of {length(oldest)} ago"
        text = f"every worker that serves its queue is busy ({len(seen.workers)} with {slots} jobs{ago})"
        return [Reason("workers_busy", text)]
    return []
