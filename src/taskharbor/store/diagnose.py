"""Why a job waits: the sentences that follow from a `Situation`, written once for all front ends. All of it is pure.

`reasons` is the whole answer for one job: the first finding is what holds the job up now, the others would hold it up
next. `word_for` is one word of it, for the row of a list. `effects` says the same of a dead job, before it is requeued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from taskharbor.drivers.heads import MAX_NEXT
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.progress import read_note
from taskharbor.model.schedule import SCHEDULE_KEY, slot_of
from taskharbor.store.flows import was_cancelled_with_another
from taskharbor.store.redaction import HIDDEN
from taskharbor.store.situation import WAITING, ListSituation, Situation
from taskharbor.store.text import command, first_line, format_duration, one_line, plural, relative, with_distance
from taskharbor.tasks.builtin_types import BUILTIN_TYPES

MAX_NAMED = 5  # jobs or queues that a message lists by name


@dataclass(frozen=True)
class Diagnosis:
    """One thing that keeps a job from running, or that a requeue would do. `code` is for scripts; `hint` is a command
    that helps."""

    code: str
    text: str
    hint: str = ""


# Why a job is not running ----------------------------------------------------------------------------------------


def reasons(seen: Situation) -> list[Diagnosis]:
    """What keeps the job from running, the most immediate first; never empty."""
    ended = _ended(seen)
    if ended is not None:
        return [ended]
    unknown = [_unknown(seen)] if seen.is_undeclared else []
    found = [*unknown, *_waiting(seen), *_held_up(seen), *_unserved(seen)]
    if found:
        return found
    return [Diagnosis("next", f"nothing: a worker will take it in turn{_place(seen.before)}")]


def _place(before: int | None) -> str:
    """Where it stands in the line of its queue."""
    if before is None:
        return ""
    if not before:
        return "; it is the next of its queue"
    number = f"{before} or more jobs" if before >= MAX_NEXT else plural(before, "job")
    return f"; {number} of its queue come{'s' if before == 1 else ''} first"


def made_by(job: JobRecord, now: datetime) -> str | None:
    """Which schedule made a job, and for which slot; None if none did."""
    name, slot = job.metadata.get(SCHEDULE_KEY), slot_of(job.metadata)
    if name is None:
        return None
    for_slot = "" if slot is None else f" for {with_distance(slot, now)}"
    return f"the schedule {one_line(name)!r} made it{for_slot}"


def _ended(seen: Situation) -> Diagnosis | None:
    info, job, now = seen.info, seen.info.job, seen.now
    if info.state is State.INFLIGHT:
        lease = relative(info.lease_expires_at, now)
        running = "it is running"
        if job.began_at is not None:
            running = f"it has been running for {format_duration(max(now - job.began_at, timedelta()))}"
        worker = one_line(info.worker) or "(unnamed)"
        text = f"{running}: worker {worker} holds its lease, which ends {lease}"
        return Diagnosis("leased", f"{text}{_progress(info, now)}")
    if info.state is State.DONE:
        then = f"; job {job.handed_to} took its place" if job.handed_to else ""
        return Diagnosis("done", f"it has been done since {with_distance(job.finished_at, now)}{then}")
    why = HIDDEN.why(job) or "no reason was recorded"
    if info.state is State.DLQ:
        text = f"it has been dead since {with_distance(job.finished_at, now)}: {why}"
        return Diagnosis("dlq", text, command("dlq requeue", job.id))
    if info.state is State.CANCELLED:
        text = f"it was cancelled {relative(job.finished_at, now)}: {why}"
        if was_cancelled_with_another(info):  # requeueing that one brings it back
            return Diagnosis("cancelled", text, command("flow show", job.flow_id or ""))
        return Diagnosis("cancelled", text, command("job retry", job.id))
    return None


def _progress(info: JobInfo, now: datetime) -> str:
    """How far its handler is, if it said so."""
    note = read_note(info.job.note)
    if note is None or (note.at is not None and info.job.began_at is not None and note.at < info.job.began_at):
        return ""
    total = "" if note.total is None else f" of {note.total:g}"
    when = f", {relative(note.at, now)}" if note.at is not None else ""
    return f"; its last progress was {note.done:g}{total}{when}"


def _waiting(seen: Situation) -> list[Diagnosis]:
    """Reasons in the job's own record: dependencies, a retry, a delay."""
    info, job, now = seen.info, seen.info.job, seen.now
    if info.state is State.BLOCKED:
        return _blocked(seen)
    if info.state is not State.SCHEDULED:
        return []
    if seen.asleep is not None:
        name, until = seen.asleep
        return [Diagnosis("asleep", f"it sleeps in step {one_line(name)!r} until {with_distance(until, now)}")]
    due = with_distance(job.run_at, now)
    hint = command("job retry", job.id)
    if job.attempts:
        why = first_line(HIDDEN.errors(job)[1]) or "no error was recorded"
        times = f"{job.attempts} of {job.max_attempts} times" if job.max_attempts else plural(job.attempts, "time")
        text = f"it failed {times} and will be retried at {due}; the last error was: {why}"
        return [Diagnosis("retry_not_due", text, hint)]
    if job.deliveries:
        text = (
            f"a worker took it and gave it back until {due}: either its handler snoozed it, or the worker has no "
            f"handler for {one_line(job.type)!r} (then the worker's log shows JobUnknown)"
        )
        return [Diagnosis("given_back", text, hint if seen.declared is not None else _start(seen))]
    return [Diagnosis("not_due", f"it is not due until {due}", hint)]


def _unknown(seen: Situation, then: str = " every time", hint: bool = True) -> Diagnosis:
    """With --app: its workers cannot run the job at all."""
    text = f"{seen.app} declares no task {one_line(seen.info.job.type)!r}: its workers give the job back{then}"
    return Diagnosis("unknown_type", text, _start(seen) if hint else "")


def _start(seen: Situation) -> str:
    """The command that starts a worker for the job. Capitals stand for what the user has to fill in."""
    kind, queue = seen.info.job.type, seen.info.job.queue
    unknown = seen.declared is not None and kind not in seen.declared
    app = [] if kind in BUILTIN_TYPES else ["--app", seen.app or "MODULE:NAME"]
    module = ["--import", kind.rpartition(".")[0] or "MODULE"] if unknown else []
    return command("worker run", options=[*app, *module, "--queues", queue])


def _blocked(seen: Situation) -> list[Diagnosis]:
    found = []
    for other in seen.dependencies:
        id, name = other.job.id, f"job {other.job.id} ({one_line(other.job.type)})"
        if other.state is State.DLQ:
            text = f"it depends on {name}, which is dead"
            found.append(Diagnosis("blocked_by_dead", text, command("dlq requeue", id)))
        elif other.state is State.CANCELLED:
            text = f"it depends on {name}, which was cancelled"
            found.append(Diagnosis("blocked_by_cancelled", text, command("job retry", id)))
        else:
            found.append(Diagnosis("blocked", f"it waits for {name}, which is {other.state}"))
    found += [Diagnosis("blocked", f"it waits for job {id}, of which there is no record") for id in seen.gone]
    left = len(seen.info.waiting_for) - len(found)
    if left > 0:
        found.append(Diagnosis("blocked", f"and for {left} more jobs"))
    return sorted(found, key=lambda each: each.code == "blocked") or [Diagnosis("blocked", "it waits for other jobs")]


def _held_up(seen: Situation) -> list[Diagnosis]:
    """Reasons that hold up a ready job: a paused queue, a full group."""
    job, found = seen.info.job, []
    if seen.paused:
        queue = one_line(job.queue)
        found.append(Diagnosis("paused", f"its queue {queue!r} is paused", command("queue resume", job.queue)))
    is_full = not seen.is_next and len(seen.group_running) >= (seen.group_limit or 1)
    if seen.info.state is State.READY and is_full:
        group = one_line(job.group or "")
        ids = ", ".join(each.job.id for each in seen.group_running[:MAX_NAMED])
        number = len(seen.group_running)
        if seen.group_limit is None:
            text = f"its group {group!r} may be full: {number} running ({ids}); its limit was not found"
            found.append(Diagnosis("group_busy", text))
        else:
            text = f"its group {group!r} is full: {number} of {seen.group_limit} running ({ids})"
            found.append(Diagnosis("group_full", text))
    return found


def not_served(queue: str) -> str:
    """That no worker serves the queue of a job."""
    return f"no worker has served its queue {one_line(queue)!r} in the last minute"


def _unserved(seen: Situation) -> list[Diagnosis]:
    if not seen.workers and seen.is_new:
        where = f" ({seen.place})" if seen.place else ""
        text = f"no worker ever used this store{where}: do your workers use the same store?"
        return [Diagnosis("never_served", text, _start(seen))]
    if not seen.workers:
        text = not_served(seen.info.job.queue)
        if seen.last is not None:
            stopped = seen.last.stopped_at
            what, when = ("sent its last heartbeat", seen.last.seen_at) if stopped is None else ("stopped", stopped)
            text += f"; the last one to do so {what} {relative(when, seen.now)}"
        elif seen.others:
            served = sorted({name for worker in seen.others for name in worker.queues})
            text += f"; the running workers serve {named(served)}"
        return [Diagnosis("no_worker", text, _start(seen))]
    free = [worker for worker in seen.workers if not worker.concurrency or worker.running < worker.concurrency]
    if seen.info.state is State.READY and not free:
        slots = sum(worker.running for worker in seen.workers)
        oldest = max(seen.now - worker.seen_at for worker in seen.workers)
        counted = f"{len(seen.workers)} with {slots} jobs, as of {format_duration(oldest)} ago"
        text = f"every worker that serves its queue is busy ({counted})"
        return [*_stuck(seen), Diagnosis("workers_busy", text)]
    return []


def _stuck(seen: Situation) -> list[Diagnosis]:
    """Slots occupied by functions that run on after their timeout."""
    stuck = sum(worker.stuck for worker in seen.workers)
    if not stuck:
        return []
    slots = plural(sum(worker.concurrency for worker in seen.workers), "slot")
    occupied = f"{stuck} of {slots} {_are(stuck)} occupied by functions past their timeout"
    remedy = (
        "they become free when the functions end or their worker restarts; process=True kills a function at its timeout"
    )
    return [Diagnosis("slots_stuck", f"{occupied}: {remedy}")]


def named(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The first names of a list, and how many more there are.

    >>> named(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if names[most:] else ""
    return ", ".join(map(one_line, names[:most])) + more


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# What a requeue would do -----------------------------------------------------------------------------------------


def effects(dead: Situation) -> list[Diagnosis]:
    """What `dlq requeue` would do with a dead job, and what would hold it up then."""
    job = dead.info.job
    found = [Diagnosis("attempts", _attempts(job))]
    if dead.dependents:
        number = f"{dead.dependents}{'' if dead.all_read else ' or more'}"
        jobs, then = ("job of its flow waits", "goes") if number == "1" else ("jobs of its flow wait", "go")
        found.append(Diagnosis("flow", f"{number} {jobs} for it, and {then} on when it is done"))
    elif job.flow_id is not None:
        found.append(Diagnosis("flow", "it belongs to a flow, in which no job waits for it"))
    found += [
        Diagnosis("blocked", f"it waits for job {each.job.id} first, which is not done") for each in dead.dependencies
    ]
    held = held_after_requeue(job.queue, dead.paused, bool(dead.workers))
    found += [each for each in held if each.code == "paused"]
    if dead.is_undeclared:
        found.append(_unknown(dead, "", hint=False))
    found += [each for each in held if each.code != "paused"]
    if dead.workers:
        number = "1 worker serves" if len(dead.workers) == 1 else f"{len(dead.workers)} workers serve"
        found.append(Diagnosis("served", f"{number} its queue {job.queue}"))
    return found


def held_after_requeue(queue: str, paused: bool, is_served: bool, *, many: bool = False) -> list[Diagnosis]:
    """What holds a job up that is back in this queue; `many`: of several queues, each with jobs."""
    name = f"the queue {one_line(queue)}" if many else f"its queue {queue}"
    found = []
    if paused:
        then = "its jobs wait until it is resumed" if many else "it waits"
        found.append(Diagnosis("paused", f"{name} is paused: {then}", command("queue resume", queue)))
    if not is_served:
        then = "its jobs wait for one" if many else "it waits for one"
        found.append(Diagnosis("no_worker", f"no worker serves {name} now: {then}"))
    return found


def _attempts(job: JobRecord) -> str:
    if not job.max_attempts:
        return "it gets all its attempts again"
    left = max(job.max_attempts - job.attempts, 1)
    all_of_them = "its 1 attempt" if job.max_attempts == 1 else f"all {job.max_attempts} attempts"
    kept = "" if left == job.max_attempts else f"; with --keep-attempts {plural(left, 'more attempt')}"
    return f"it gets {all_of_them} again{kept}"


def dead_commands(job: JobRecord) -> list[str]:
    """What an operator would type next about a dead job."""
    alike = command("dlq requeue", options=["--fingerprint", job.fingerprint, "--canary", "5", "--dry-run"])
    commands = [command("dlq requeue", job.id), command("dlq edit", job.id, options=["--requeue"])]
    return [*commands, *([alike] if job.fingerprint else [])]


# One word for each job of a list ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaitWord:
    """Why a job waits. `code` is one of those of `taskharbor explain`; `held`: an operator may have to help."""

    code: str
    word: str
    held: bool = False


_WORDS = {
    word.code: word
    for word in (
        WaitWord("unknown_type", "unknown type", True),
        WaitWord("paused", "paused", True),
        WaitWord("group_full", "group full"),
        WaitWord("no_worker", "no worker", True),
        WaitWord("workers_busy", "workers busy"),
        WaitWord("next", "next"),
    )
}


def word_for(info: JobInfo, around: ListSituation) -> WaitWord | None:
    """Why this job waits; None for one that runs or has ended."""
    if info.state not in WAITING:
        return None
    if info.state is State.BLOCKED:
        number = len(info.waiting_for)
        return WaitWord("blocked", f"waits for {plural(number, 'job')}" if number else "waits")
    seen = around.of(info)
    if info.state is State.READY:
        return next(_WORDS[each.code] for each in reasons(seen) if each.code in _WORDS)
    if seen.paused:
        return _WORDS["paused"]
    run_at = info.job.run_at
    due = "due" if run_at is None or run_at <= seen.now else f"in {format_duration(run_at - seen.now)}"
    code = _waiting(seen)[0].code
    return WaitWord(code, f"retry {due}" if code == "retry_not_due" else due)
