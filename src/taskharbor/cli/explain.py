"""Why a job is not running: a pure function of what was read about it and around it.

`read_situation` reads, `reasons` judges. The first reason is the one that counts now; those behind it would count next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.cli.builtin_handlers import TYPES
from taskharbor.cli.redaction import HIDDEN
from taskharbor.cli.text import first_line, one_line
from taskharbor.cli.timefmt import format_duration, relative, with_distance
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import EPOCH, JobInfo, State, WorkerInfo
from taskharbor.tasks.flow_metadata import JOIN_TYPE

NAMED = 5  # jobs that are named one by one
LOOKED_AT = 200
FROM_THE_START = EPOCH + timedelta(days=1)  # as `now`: every worker that the store remembers was heard since
TAKEN = ("inflight", "done", "dlq")  # states that only a worker brings a job into


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
    workers: tuple[WorkerInfo, ...] = ()  # heard in the last minute, and serving its queue
    others: tuple[WorkerInfo, ...] = ()  # heard in the last minute, and serving other queues
    last: WorkerInfo | None = None  # who served its queue last, before the last minute
    is_new: bool = False  # the store shows no trace of any worker
    place: str = ""  # the store, without what may be secret
    app: str = ""  # what --app says
    declared: frozenset[str] | None = None  # the types of its tasks
    dependencies: tuple[JobInfo, ...] = ()
    gone: tuple[str, ...] = ()  # dependencies without a record
    group_running: tuple[JobInfo, ...] = ()
    group_limit: int = 1


async def read_situation(
    driver: Driver, id: str, now: datetime, *, place: str = "", app: str = "", declared: frozenset[str] | None = None
) -> Situation:
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
    counts, heard = await driver.counts(now), await driver.workers(now)
    known = [] if any(job.queue in worker.queues for worker in heard) else await driver.workers(FROM_THE_START)
    before = [worker for worker in known if job.queue in worker.queues]
    taken = job.deliveries or any(states.get(state) for states in counts.values() for state in TAKEN)
    return Situation(
        info,
        now,
        paused=await driver.is_paused(job.queue),
        ready=counts.get(job.queue, {}).get("ready", 0),
        workers=tuple(worker for worker in heard if job.queue in worker.queues),
        others=tuple(worker for worker in heard if job.queue not in worker.queues),
        last=max(before, key=lambda worker: worker.stopped_at or worker.seen_at, default=None),
        is_new=not (heard or known or taken),
        place=place,
        app=app,
        declared=declared,
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
    found = [*_unknown(seen), *_waiting(seen), *_held_up(seen), *_unserved(seen)]
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
        return Reason("done", f"it is done since {with_distance(job.finished_at, now)}{then}")
    why = HIDDEN.why(job) or "no reason was recorded"
    if info.state is State.DLQ:
        text = f"it is dead since {with_distance(job.finished_at, now)}: {why}"
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
    due = with_distance(job.run_at, now)
    hint = f"taskharbor job retry {job.id}"
    if job.attempts:
        why = first_line(HIDDEN.errors(job)[1]) or "no error was recorded"
        times = f"{job.attempts} of {job.max_attempts} times" if job.max_attempts else _count(job.attempts, "time")
        text = f"it failed {times} and is tried again {due}; the last error was: {why}"
        return [Reason("retry_not_due", text, hint)]
    if job.deliveries:
        text = (
            f"a worker had it and gave it back until {due}: its handler snoozed it, or the worker has no handler for "
            f"{one_line(job.type)!r}, which its log tells as JobUnknown"
        )
        return [Reason("given_back", text, hint if seen.declared is not None else _start(seen))]
    return [Reason("not_due", f"it is not due before {due}", hint)]


def _unknown(seen: Situation) -> list[Reason]:
    """With --app: whether its workers can run the job at all."""
    kind = seen.info.job.type
    if seen.declared is None or kind in seen.declared or kind == JOIN_TYPE:
        return []
    text = f"{seen.app} declares no task {one_line(kind)!r}: a worker of it gives the job back each time"
    return [Reason("unknown_type", text, _start(seen))]


def _start(seen: Situation) -> str:
    """How to start a worker that runs the job; in capitals what nobody here knows."""
    kind, queue = one_line(seen.info.job.type), one_line(seen.info.job.queue)
    unknown = seen.declared is not None and kind not in seen.declared
    app = "" if kind in TYPES else f" --app {seen.app or 'MODULE:NAME'}"
    module = f" --import {kind.rpartition('.')[0] or 'MODULE'}" if unknown else ""
    return f"taskharbor worker run{app}{module} --queues {queue}"


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
    if not seen.workers and seen.is_new:
        where = f" ({seen.place})" if seen.place else ""
        text = f"no worker was ever heard on this store{where}: is it the one that your workers use?"
        return [Reason("never_served", text, _start(seen))]
    if not seen.workers:
        text = f"no worker that was heard in the last minute serves its queue {queue!r}"
        if seen.last is not None:
            stopped = seen.last.stopped_at
            what, when = ("was heard", seen.last.seen_at) if stopped is None else ("stopped", stopped)
            text += f"; the last one that did {what} {relative(when, seen.now)}"
        elif seen.others:
            served = sorted({name for worker in seen.others for name in worker.queues})
            more = f" and {len(served) - NAMED} more" if len(served) > NAMED else ""
            text += f"; those that were serve {', '.join(map(one_line, served[:NAMED]))}{more}"
        return [Reason("no_worker", text, _start(seen))]
    free = [worker for worker in seen.workers if not worker.concurrency or worker.running < worker.concurrency]
    if seen.info.state is State.READY and not free:
        slots = sum(worker.running for worker in seen.workers)
        oldest = max((seen.now - worker.seen_at for worker in seen.workers), default=None)
        ago = "" if oldest is None else f", as of {format_duration(oldest)} ago"
        text = f"every worker that serves its queue is busy ({len(seen.workers)} with {slots} jobs{ago})"
        return [*_stuck(seen), Reason("workers_busy", text)]
    return []


def _stuck(seen: Situation) -> list[Reason]:
    """Slots that nobody gets back before a handler ends that should have ended long ago."""
    stuck, slots = (sum(getattr(worker, what) for worker in seen.workers) for what in ("stuck", "concurrency"))
    if not stuck:
        return []
    held = f"{stuck} of {_count(slots, 'slot')} {'is' if stuck == 1 else 'are'} held by functions past their timeout"
    mend = (
        "they are free when those end, or when their worker is restarted; process=True kills a function at its timeout"
    )
    return [Reason("slots_stuck", f"{held}: {mend}")]
