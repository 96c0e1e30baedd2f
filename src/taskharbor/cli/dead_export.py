"""`dlq export`: dead jobs as JSON lines, one record a line, always with the same keys."""

from __future__ import annotations

import base64
from typing import Any

import click
import msgspec

from taskharbor.cli.acting import Operator, act, reveal
from taskharbor.cli.output import write_json
from taskharbor.cli.selection import filtered, in_words
from taskharbor.cli.target import Target
from taskharbor.model.job import JobInfo
from taskharbor.ops.redaction import Redaction


def write_export(target: Target, redaction: Redaction, limit: int | None, given: dict[str, Any]) -> None:
    """Print dead jobs, one a line; how many there were goes to stderr."""

    async def export(operator: Operator) -> int:
        jobs = await filtered(operator, given)
        await reveal(operator.driver, operator.now, redaction, jobs=jobs)
        number = 0
        async for info in jobs:
            write_json(record(info, redaction), one=True)
            number += 1
            if number == limit:
                break
        return number

    number = act(target, export)
    what = in_words(given)
    words = what.replace("jobs", "job", 1) if number == 1 else what
    click.echo(f"{number:,} {words} {'was' if number == 1 else 'were'} exported", err=True)


def record(info: JobInfo, redaction: Redaction) -> dict[str, Any]:
    """One record. `payload` is null if it is hidden; one that is not JSON is in `payload_base64`."""
    job = info.job
    reason, last_error = redaction.errors(job)
    payload, encoded = _payload(job.payload, redaction)
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": info.state.value,
        "priority": job.priority,
        "group": job.group,
        "flow_id": job.flow_id,
        "idempotency_key": job.idempotency_key,
        "created_at": job.created_at,
        "run_at": job.run_at,
        "began_at": job.began_at,
        "failed_at": job.failed_at,
        "finished_at": job.finished_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts or None,
        "deliveries": job.deliveries,
        "lost": job.lost,
        "edits": job.edits,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "metadata": redaction.metadata(job),
        "reason": reason or None,
        "error_class": job.error_class or None,
        "fingerprint": job.fingerprint or None,
        "last_error": last_error or None,
        "payload_bytes": len(job.payload),
        "payload": payload,
        "payload_base64": encoded,
    }


def _payload(data: bytes, redaction: Redaction) -> tuple[Any, str | None]:
    """The payload as JSON, with its numbers as they are written; or as base64 if it is not JSON."""
    if not redaction.show or not data:
        return None, None
    if redaction.fields:
        return redaction.value(data), None
    try:
        msgspec.json.decode(data)
        return msgspec.Raw(msgspec.json.format(data, indent=-1)), None
    except (ValueError, RecursionError):
        return None, base64.b64encode(data).decode()
