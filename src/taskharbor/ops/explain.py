"""Why a job is not running: a pure function of the job and its surroundings.

`read_situation` reads the store, `reasons` is pure. The first reason is what holds the job up now; the others would
hold it up next.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import MAX_NEXT, read_counts, read_heads
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import EPOCH, JobInfo, JobRecord, State, WorkerInfo
from taskharbor.model.progress import read_note
from taskharbor.model.schedule import SCHEDULE_KEY, slot_of
from taskharbor.ops.builtin_types import BUILTIN_TYPES
from taskharbor.ops.ids import find_job
from taskharbor.ops.redaction import HIDDEN
from taskharbor.ops.text import first_line, one_line
from taskharbor.ops.timefmt import format_duration, relative, with_distance
from taskharbor.tasks.flow_metadata import JOIN_TYPE

MAX_NAMED = 5  # jobs or queues that a message lists by name
PAGE_JOBS = 200
MAX_COUNTED = 1_000  # jobs of a queue in one state
SINCE_EVER = EPOCH + timedelta(days=1)  # passed as `now`, it makes `workers` return every worker on record
TAKEN = ("inflight", "done", "dlq")  # states that only a worker moves a job to


@dataclass(frozen=True)
class Reason:
    """One thing that keeps a job from running. `code` is for scripts; `hint` is a command that helps."""

    code: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Situation:
    """What was read from the store at one moment."""

    info: JobInfo
    now: datetime
    paused: bool = False
    ready: int = 0  # ready jobs of its queue, including this one
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
    is_next: bool = False  # it is among the next that workers get: its group has room, whatever its limit is


async def read_situation(
    driver: Driver, id: str, now: datetime, *, place: str = "", app: str = "", declared: frozenset[str] | None = None
) -> Situation:
    """Read everything that `reasons` needs."""
    info = await find_job(driver, id, now)
    job = info.job
    if info.state.terminal or info.state is State.INFLIGHT:
        return Situation(info, now)
    dependencies, gone = [], []
    for dependency in info.waiting_for[:MAX_NAMED]:
        try:
            dependencies.append(await driver.inspect(dependency, now))
        except JobNotFound:
            gone.append(dependency)
    running: tuple[JobInfo, ...] = ()
    limit: int | None = 1
    is_next = False
    if job.group is not None:
        group: dict[str, Any] = {"queue": job.queue, "group": job.group, "payloads": False}
        page = await driver.list(limit=PAGE_JOBS, now=now, **group)
        # The first stored job with a limit sets the group's; drivers do not report it otherwise. A page that is not
        # the last proves nothing of what it does not hold.
        set_by = next((each.job.group_limit for each in page.items if each.job.group_limit), job.group_limit)
        limit = set_by or (1 if page.cursor is None else None)
        inflight = await driver.list(state=State.INFLIGHT, limit=PAGE_JOBS, now=now, **group)
        running = inflight.items
        head = (await read_heads(driver, [job.queue], now, MAX_NEXT))[job.queue]
        is_next = job.id in head.next
    counts, alive = await read_counts(driver, now, MAX_COUNTED), await driver.workers(now)
    known = [] if any(job.queue in worker.queues for worker in alive) else await driver.workers(SINCE_EVER)
    before = [worker for worker in known if job.queue in worker.queues]
    taken = job.deliveries or any(states.get(state) for states in counts.values() for state in TAKEN)
    return Situation(
        info,
        now,
        paused=await driver.is_paused(job.queue),
        ready=counts.get(job.queue, {}).get("ready", 0),
        workers=tuple(worker for worker in alive if job.queue in worker.queues),
        others=tuple(worker for worker in alive if job.queue not in worker.queues),
        last=max(before, key=lambda worker: worker.stopped_at or worker.seen_at, default=None),
        is_new=not (alive or known or taken),
        place=place,
        app=app,
        declared=declared,
        dependencies=tuple(dependencies),
        gone=tuple(gone),
        group_running=running,
        group_limit=limit,
        is_next=is_next,
    )


def made_by(job: JobRecord, now: datetime) -> str | None:
    """Which schedule made a job, and for which slot; None if none did."""
    name, slot = job.metadata.get(SCHEDULE_KEY), slot_of(job.metadata)
    if name is None:
        return None
    for_slot = "" if slot is None else f" for {with_distance(slot, now)}"
    return f"the schedule {one_line(name)!r} made it{for_slot}"


def reasons(seen: Situation) -> list[Reason]:
    """What keeps the job from running, the most immediate first; never empty."""
    ended = _ended(seen)
    if ended is not None:
        return [ended]
    found = [*_unknown(seen), *_waiting(seen), *_held_up(seen), *_unserved(seen)]
    if found:
        return found
    others = seen.ready - 1
    number = f"{others} or more" if seen.ready >= MAX_COUNTED else str(others)
    before = (
        f"{number} other job{'s' if others != 1 else ''} of its queue {'are' if others != 1 else 'is'} ready as well"
    )
    return [Reason("next", f"nothing: a worker will take it in turn; {before}")]


def _ended(seen: Situation) -> Reason | None:
    info, job, now = seen.info, seen.info.job, seen.now
    if info.state is State.INFLIGHT:
        lease = relative(info.lease_expires_at, now)
        began = "" if job.began_at is None else f" since {format_duration(max(now - job.began_at, timedelta()))}"
        worker = one_line(info.worker) or "(unnamed)"
        text = f"it is running{began}: worker {worker} holds its lease, which ends {lease}"
        return Reason("leased", f"{text}{_progress(info, now)}")
    if info.state is State.DONE:
        then = f"; job {job.handed_to} took its place" if job.handed_to else ""
        return Reason("done", f"it has been done since {with_distance(job.finished_at, now)}{then}")
    why = HIDDEN.why(job) or "no reason was recorded"
    if info.state is State.DLQ:
        text = f"it has been dead since {with_distance(job.finished_at, now)}: {why}"
        return Reason("dlq", text, f"taskharbor dlq requeue {job.id}")
    if info.state is State.CANCELLED:
        text = f"it was cancelled {relative(job.finished_at, now)}: {why}"
        return Reason("cancelled", text, f"taskharbor job retry {job.id}")
    return None


def _progress(info: JobInfo, now: datetime) -> str:
    """How far its handler is, if it said so."""
    found = read_note(info.job.note)
    if found is None or (found.at is not None and info.job.began_at is not None and found.at < info.job.began_at):
        return ""
    total = "" if found.total is None else f" of {found.total:g}"
    said = f", {relative(found.at, now)}" if found.at is not None else ""
    return f"; its last progress was {found.done:g}{total}{said}"


def _waiting(seen: Situation) -> list[Reason]:
    """Reasons in the job's own record: dependencies, a retry, a delay."""
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
        text = f"it failed {times} and will be retried at {due}; the last error was: {why}"
        return [Reason("retry_not_due", text, hint)]
    if job.deliveries:
        text = (
            f"a worker took it and gave it back until {due}: either its handler snoozed it, or the worker has no "
            f"handler for {one_line(job.type)!r} (then the worker's log shows JobUnknown)"
        )
        return [Reason("given_back", text, hint if seen.declared is not None else _start(seen))]
    return [Reason("not_due", f"it is not due until {due}", hint)]


def _unknown(seen: Situation) -> list[Reason]:
    """With --app: whether its workers can run the job at all."""
    kind = seen.info.job.type
    if seen.declared is None or kind in seen.declared or kind == JOIN_TYPE:
        return []
    text = f"{seen.app} declares no task {one_line(kind)!r}: its workers give the job back every time"
    return [Reason("unknown_type", text, _start(seen))]


def _start(seen: Situation) -> str:
    """The command that starts a worker for the job. Capitals stand for what the user has to fill in."""
    kind, queue = one_line(seen.info.job.type), one_line(seen.info.job.queue)
    unknown = seen.declared is not None and kind not in seen.declared
    app = "" if kind in BUILTIN_TYPES else f" --app {seen.app or 'MODULE:NAME'}"
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
                Reason(
                    "blocked_by_dead", f"it depends on {name}, which is dead", f"taskharbor dlq requeue {other.job.id}"
                )
            )
        elif other.state is State.CANCELLED:
            text = f"it depends on {name}, which was cancelled"
            found.append(Reason("blocked_by_cancelled", text, f"taskharbor job retry {other.job.id}"))
        else:
            found.append(Reason("blocked", f"it waits for {name}, which is {other.state}"))
    found += [Reason("blocked", f"it waits for job {id}, of which there is no record") for id in seen.gone]
    left = len(seen.info.waiting_for) - len(found)
    if left > 0:
        found.append(Reason("blocked", f"and for {left} more jobs"))
    return sorted(found, key=lambda reason: reason.code == "blocked") or [Reason("blocked", "it waits for other jobs")]


def _held_up(seen: Situation) -> list[Reason]:
    """Reasons that hold up a ready job: a paused queue, a full group."""
    job, found = seen.info.job, []
    queue = one_line(job.queue)
    if seen.paused:
        found.append(Reason("paused", f"its queue {queue!r} is paused", f"taskharbor queue resume {queue}"))
    is_full = not seen.is_next and len(seen.group_running) >= (seen.group_limit or 1)
    if seen.info.state is State.READY and is_full:
        group = one_line(job.group or "")
        ids = ", ".join(each.job.id for each in seen.group_running[:MAX_NAMED])
        number = len(seen.group_running)
        if seen.group_limit is None:
            text = f"its group {group!r} may be full: {number} running ({ids}); its limit was not found"
            found.append(Reason("group_busy", text))
        else:
            text = f"its group {group!r} is full: {number} of {seen.group_limit} running ({ids})"
            found.append(Reason("group_full", text))
    return found


def _unserved(seen: Situation) -> list[Reason]:
    queue = one_line(seen.info.job.queue)
    if not seen.workers and seen.is_new:
        where = f" ({seen.place})" if seen.place else ""
        text = f"no worker ever used this store{where}: do your workers use the same store?"
        return [Reason("never_served", text, _start(seen))]
    if not seen.workers:
        text = f"no worker has served its queue {queue!r} in the last minute"
        if seen.last is not None:
            stopped = seen.last.stopped_at
            what, when = ("sent its last heartbeat", seen.last.seen_at) if stopped is None else ("stopped", stopped)
            text += f"; the last one to do so {what} {relative(when, seen.now)}"
        elif seen.others:
            served = sorted({name for worker in seen.others for name in worker.queues})
            more = f" and {len(served) - MAX_NAMED} more" if len(served) > MAX_NAMED else ""
            text += f"; the running workers serve {', '.join(map(one_line, served[:MAX_NAMED]))}{more}"
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
    """Slots occupied by functions that run on after their timeout."""
    stuck, slots = (sum(getattr(worker, what) for worker in seen.workers) for what in ("stuck", "concurrency"))
    if not stuck:
        return []
    occupied = (
        f"{stuck} of {_count(slots, 'slot')} {'is' if stuck == 1 else 'are'} occupied by functions past their timeout"
    )
    remedy = (
        "they become free when the functions end or their worker restarts; process=True kills a function at its timeout"
    )
    return [Reason("slots_stuck", f"{occupied}: {remedy}")]
