"""Jobs, queues and workers as JSON: always the same keys, in the same order. Scripts rely on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from taskharbor.model.executions import Attempt, AttemptKind
from taskharbor.model.job import FlowInfo, JobInfo, State, WorkerInfo
from taskharbor.model.progress import read_note
from taskharbor.model.schedule import SCHEDULE_KEY, slot_of
from taskharbor.ops.job_view import executions_of, times_of
from taskharbor.store.redaction import HIDDEN, Redaction

if TYPE_CHECKING:
    from taskharbor.model.audit import AuditEntry
    from taskharbor.ops.dead_kinds import DeadKind
    from taskharbor.ops.operations import OperationRow
    from taskharbor.store.diagnose import Diagnosis
    from taskharbor.store.summary import Summary

STATES = tuple(state.value for state in State)


def summary(info: JobInfo) -> dict[str, Any]:
    """A job in a list."""
    return {**_place(info), "reason": HIDDEN.errors(info.job)[0] or None}


def _place(info: JobInfo) -> dict[str, Any]:
    job = info.job
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": info.state.value,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts or None,
        "run_at": job.run_at,
        "created_at": job.created_at,
        "finished_at": job.finished_at,
        "group": job.group,
        "flow_id": job.flow_id,
        "worker": info.worker or None,
        "lease_expires_at": info.lease_expires_at,
    }


def dead(info: JobInfo) -> dict[str, Any]:
    """A dead job in a list."""
    reason, last_error = HIDDEN.errors(info.job)
    return {**_place(info), "reason": reason or None, "last_error": last_error or None}


def whole(info: JobInfo, redaction: Redaction, now: datetime) -> dict[str, Any]:
    """Everything about a job. The keys that `hidden` lists are null because they are not shown."""
    job = info.job
    times = times_of(info, now)
    rows, missing = executions(info, redaction, now)
    reason, last_error = redaction.errors(job)
    hidden = [] if redaction.show else ["payload", *(["result"] if job.result is not None else [])]
    return {
        **_place(info),
        "reason": reason or None,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "deliveries": job.deliveries,
        "lost": job.lost,
        "idempotency_key": redaction.key(job),
        "group_limit": job.group_limit or None,
        "depends_on": list(job.depends_on),
        "waiting_for": list(info.waiting_for),
        "handed_to": job.handed_to,
        "metadata": redaction.metadata(job),
        "failed_at": job.failed_at,
        "last_error": last_error or None,
        "payload_bytes": len(job.payload),
        "payload": redaction.value(job.payload),
        "result_bytes": None if job.result is None else len(job.result),
        "result": redaction.value(job.result),
        "hidden": hidden,
        "began_at": job.began_at,
        "ran_on": job.ran_on or None,
        "waited_seconds": None if times.waited is None else times.waited.total_seconds(),
        "ran_seconds": None if times.ran is None else times.ran.total_seconds(),
        "error_class": job.error_class or None,
        "fingerprint": job.fingerprint or None,
        "edits": job.edits,
        "keep_for": None if job.keep_for is None else job.keep_for.total_seconds(),
        "progress": progress(info, redaction),
        "executions": rows,
        "missing": missing,
    }


def progress(info: JobInfo, redaction: Redaction = HIDDEN) -> dict[str, Any] | None:
    """What the handler last reported, with hidden payload values masked in its words."""
    found = read_note(info.job.note)
    if found is None:
        return None
    (note,) = redaction.texts(info.job, (found.note,))
    return {"done": found.done, "total": found.total, "note": note, "at": found.at}


def executions(info: JobInfo, redaction: Redaction, now: datetime) -> tuple[list[dict[str, Any]], int]:
    """The executions of a job that are known, and how many are not; hidden payload values are masked in errors."""
    found, missing = executions_of(info)
    errors = redaction.texts(info.job, [each.error for each in found])
    return [_execution(each, error, now) for each, error in zip(found, errors, strict=True)], missing


def _execution(each: Attempt, error: str, now: datetime) -> dict[str, Any]:
    ended = now if each.kind is AttemptKind.RUNNING else each.ended_at
    took = None if each.began_at is None or ended is None else max((ended - each.began_at).total_seconds(), 0.0)
    return {
        "number": each.number,
        "kind": each.kind.value,
        "worker": each.worker or None,
        "began_at": each.began_at,
        "ended_at": each.ended_at,
        "seconds": took,
        "error_class": each.error_class or None,
        "error": error or None,
        "fingerprint": each.fingerprint or None,
    }


def states(counts: dict[str, int]) -> dict[str, int]:
    """The number of jobs in each state, zeros included."""
    return {state: counts.get(state, 0) for state in STATES}


def worker(info: WorkerInfo) -> dict[str, Any]:
    """A worker that sent a heartbeat in the last minute."""
    return {
        "worker": info.worker,
        "queues": list(info.queues),
        "running": info.running,
        "concurrency": info.concurrency,
        "stuck": info.stuck,
        "host": info.host,
        "pid": info.pid,
        "started_at": info.started_at,
        "seen_at": info.seen_at,
    }


def explanation(info: JobInfo, found: Sequence[Diagnosis]) -> dict[str, Any]:
    """Why a job is not running."""
    job = info.job
    rows = [{"code": each.code, "text": each.text, "hint": each.hint or None} for each in found]
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": info.state.value,
        "schedule": job.metadata.get(SCHEDULE_KEY),
        "slot": slot_of(job.metadata),
        "reasons": rows,
    }


def flow_summary(found: FlowInfo) -> dict[str, Any]:
    """A workflow in a list."""
    return {
        "id": found.id,
        "status": found.status,
        "created_at": found.created_at,
        "newest_job_at": found.updated_at,
    }


def flow(found: FlowInfo, complete: bool) -> dict[str, Any]:
    """A workflow with its jobs and edges. `complete`: whether all its jobs were read."""
    from taskharbor.flow.summary import progress_of  # a list of jobs does not need to import workflows
    from taskharbor.ops.flow_view import next_commands

    done, total = progress_of(found)
    return {
        "id": found.id,
        "status": found.status.value,
        "created_at": found.created_at,
        "updated_at": found.updated_at,
        "done": done,
        "total": total,
        "jobs": [summary(node) for node in found.nodes],
        "edges": found.edges,
        "complete": complete,
        "next": next_commands(found),
    }


def audit_entry(entry: AuditEntry) -> dict[str, Any]:
    """An entry of the audit."""
    return {
        "id": entry.id,
        "at": entry.at,
        "by": entry.by,
        "action": entry.action,
        "target": entry.target or None,
        "ids": list(entry.ids),
        "n": entry.n,
        "filter": entry.filter,
        "options": entry.options,
        "done": entry.done,
        "refused": entry.refused,
        "status": entry.status or None,
    }


def operation(found: OperationRow) -> dict[str, Any]:
    """A bulk operation, and how far it is."""
    entry, progress = found.entry, found.progress
    return {
        "id": found.id,
        "at": entry.at,
        "by": entry.by,
        "action": entry.action,
        "filter": entry.filter,
        "options": entry.options,
        "status": found.status.value,
        "done": found.done,
        "skipped": found.skipped,
        "phase": None if progress is None else progress.phase,
        "total": None if progress is None else progress.total,
        "failures": None if progress is None else progress.failures,
        "reason": (progress.reason or None) if progress is not None else None,
    }


def dead_summary(found: Summary, kinds: Sequence[DeadKind], by: str) -> dict[str, Any]:
    """The kinds of dead jobs that are shown, and how many are not."""
    rows = [_dead_kind(kind, by) for kind in kinds]
    more = len(found.rows) - len(kinds)
    return {"by": by, "jobs": found.jobs, "complete": found.complete, "rows": rows, "more": more}


def _dead_kind(kind: DeadKind, by: str) -> dict[str, Any]:
    job, (reason, last_error) = kind.sample.job, kind.errors
    sample = {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "error_class": job.error_class or None,
        "fingerprint": job.fingerprint or None,
        "reason": reason or None,
        "last_error": last_error or None,
    }
    row = kind.row
    return {
        "value": kind.value(by) or None,
        "jobs": row.n,
        "newest": row.newest,
        "oldest": row.oldest,
        "sample": sample,
    }
