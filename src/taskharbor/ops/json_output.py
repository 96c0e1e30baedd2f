"""Jobs, queues and workers as JSON: always the same keys, in the same order. Scripts rely on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from taskharbor.model.executions import Attempt, AttemptKind
from taskharbor.model.job import FlowInfo, JobInfo, State, WorkerInfo
from taskharbor.model.memo import Memo, step_infos
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
        **fields(job, "run_at", "created_at", "finished_at", "group", "flow_id"),
        **fields(info, "worker", "lease_expires_at"),
    }


def fields(record: object, *names: str) -> dict[str, Any]:
    """Fields of a record as JSON has them: an empty text is null, a span is seconds, a tuple a list."""
    return {name: _plain(getattr(record, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else None if value == "" else value


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
        **fields(job, "timeout", "deliveries", "lost"),
        "idempotency_key": redaction.key(job),
        "group_limit": job.group_limit or None,
        **fields(job, "depends_on"),
        **fields(info, "waiting_for"),
        **fields(job, "handed_to"),
        "metadata": redaction.metadata(job),
        "failed_at": job.failed_at,
        "last_error": last_error or None,
        "payload_bytes": len(job.payload),
        "payload": redaction.value(job.payload),
        "result_bytes": None if job.result is None else len(job.result),
        "result": redaction.value(job.result),
        "hidden": hidden,
        **fields(job, "began_at", "ran_on"),
        "waited_seconds": _plain(times.waited),
        "ran_seconds": _plain(times.ran),
        **fields(job, "error_class", "fingerprint", "edits", "keep_for"),
        "progress": progress(info, redaction),
        "executions": rows,
        "missing": missing,
    }


def steps(memos: Sequence[Memo], redaction: Redaction) -> list[dict[str, Any]]:
    """The steps of a job that are stored."""
    values = {memo.name: memo.value for memo in memos}
    return [
        {**fields(each, "name", "at", "size", "execution"), "value": redaction.value(values[each.name][1:])}
        for each in step_infos(memos)
    ]


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
        **fields(each, "worker", "began_at", "ended_at"),
        "seconds": took,
        **fields(each, "error_class"),
        "error": error or None,
        **fields(each, "fingerprint"),
    }


def worker(info: WorkerInfo) -> dict[str, Any]:
    """A worker that sent a heartbeat in the last minute."""
    names = ("worker", "queues", "running", "concurrency", "stuck", "host", "pid", "started_at", "seen_at")
    return {name: getattr(info, name) for name in names}


def explanation(info: JobInfo, found: Sequence[Diagnosis]) -> dict[str, Any]:
    """Why a job is not running."""
    job = info.job
    facts = {"id": job.id, "type": job.type, "queue": job.queue, "state": info.state.value}
    made_by = {"schedule": job.metadata.get(SCHEDULE_KEY), "slot": slot_of(job.metadata)}
    return {**facts, **made_by, "reasons": findings(found)}


def findings(found: Sequence[Diagnosis]) -> list[dict[str, Any]]:
    """What keeps a job from running, or what a requeue would do."""
    return [fields(each, "code", "text", "hint") for each in found]


def flow_summary(found: FlowInfo) -> dict[str, Any]:
    """A workflow in a list."""
    return {**fields(found, "id", "status", "created_at"), "newest_job_at": found.updated_at}


def flow(found: FlowInfo, complete: bool) -> dict[str, Any]:
    """A workflow with its jobs and edges. `complete`: whether all its jobs were read."""
    from taskharbor.flow.summary import progress_of  # a list of jobs does not need to import workflows
    from taskharbor.ops.flow_view import next_commands

    done, total = progress_of(found)
    return {
        **fields(found, "id", "status", "created_at", "updated_at"),
        "done": done,
        "total": total,
        "jobs": [summary(node) for node in found.nodes],
        "edges": found.edges,
        "complete": complete,
        "next": next_commands(found),
    }


def audit_entry(entry: AuditEntry) -> dict[str, Any]:
    """An entry of the audit."""
    names = ("id", "at", "by", "action", "target", "ids", "n", "filter", "options", "done", "refused", "status")
    return fields(entry, *names)


def operation(found: OperationRow) -> dict[str, Any]:
    """A bulk operation, and how far it is."""
    progress = found.progress
    return {
        **fields(found.entry, "id", "at", "by", "action", "filter", "options"),
        **fields(found, "status", "done", "skipped"),
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
    sample = {"id": job.id, "type": job.type, "queue": job.queue, **fields(job, "error_class", "fingerprint")}
    sample |= {"reason": reason or None, "last_error": last_error or None}
    value = kind.value(by) or None
    return {"value": value, "jobs": kind.row.n, **fields(kind.row, "newest", "oldest"), "sample": sample}
