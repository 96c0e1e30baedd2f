"""One job as `inspect`, `job show` and `job attempts` print it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from taskharbor.cli.output import Column, write, write_facts, write_json, write_table
from taskharbor.cli.store import call_store, reveal
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.job import JobInfo
from taskharbor.ops import json_output
from taskharbor.ops.job_view import tries_of
from taskharbor.store.ids import find_job
from taskharbor.store.redaction import HIDDEN, Redaction
from taskharbor.store.text import first_line, format_duration, one_line, relative, with_distance

COLUMNS = (
    Column("#", right=True),
    Column("kind", whole=True),
    Column("began", whole=True, times=True),
    Column("took", right=True, times=True),
    Column("worker", tail=True),
)
STEP_COLUMNS = (
    Column("step", tail=True),
    Column("stored", whole=True, times=True),
    Column("bytes", right=True),
    Column("execution", right=True),
)
_NOT_LINES = {"max_attempts", "payload_bytes", "result_bytes", "hidden", "executions", "missing"}
_ZERO_IS_NOTHING = {"priority", "lost", "edits"}
_SECONDS = {"waited_seconds": "waited", "ran_seconds": "ran", "timeout": "timeout", "keep_for": "kept for"}
_FIRST = ("id", "type", "queue", "state", "progress", "began_at", "ran_on", "waited_seconds", "ran_seconds")


def read_one(target: Target, typed: str, redaction: Redaction = HIDDEN) -> tuple[JobInfo, datetime]:
    """The job that was meant, and the store's time. That a payload will be shown is written into the audit."""

    async def read(driver: Driver, now: datetime) -> tuple[JobInfo, datetime]:
        info = await find_job(driver, typed, now)
        await reveal(driver, now, redaction, [info.job.id])
        return info, now

    return call_store(target, read)


def write_job(target: Target, typed: str, redaction: Redaction, *, steps: bool = False) -> None:
    """Print a job in full; `steps`: with what is stored of its handler's steps."""
    info, now = read_one(target, typed, redaction=redaction)
    facts = json_output.whole(info, redaction, now)
    rows: list[dict[str, Any]] = []
    if steps:
        rows = json_output.steps(call_store(target, lambda driver, _: driver.steps(info.job.id)), redaction)
    if target.json:
        facts |= {"steps": rows} if steps else {}
        write_json(facts, one=is_raw(facts))
        return
    write_facts(job_lines(facts, tries_of(info), now))
    if facts["executions"]:
        write("")
        write_executions(facts["executions"], facts["missing"], now)
    if steps:
        write("")
        write_steps(rows, now)


def write_steps(rows: Sequence[dict[str, Any]], now: datetime) -> None:
    """Print the steps of a job as a table, each with its value if that is shown."""
    if not rows:
        write("no step of it is stored")
        return
    cells = [[row["name"], relative(row["at"], now), str(row["size"]), str(row["execution"])] for row in rows]
    values = ["" if row["value"] is None else msgspec.json.encode(row["value"]).decode() for row in rows]
    write_table(STEP_COLUMNS, cells, below=values, title="value")


def is_raw(facts: dict[str, Any]) -> bool:
    """Whether a value is so deep that it can only be copied as it is, on one line."""
    return any(isinstance(facts[name], msgspec.Raw) for name in ("payload", "result"))


def write_attempts(target: Target, typed: str, redaction: Redaction) -> None:
    """Print the executions of a job."""
    info, now = read_one(target, typed, redaction=redaction)
    rows, missing = json_output.executions(info, redaction, now)
    if target.json:
        write_json({"id": info.job.id, "missing": missing, "attempts": rows})
    elif rows or missing:
        write_executions(rows, missing, now)
    else:
        write(f"job {one_line(info.job.id)} has not run yet")


def write_executions(rows: Sequence[dict[str, Any]], missing: int, now: datetime) -> None:
    """Print executions as a table, each with its error."""
    cells = [
        [
            str(row["number"]),
            row["kind"],
            relative(row["began_at"], now),
            "" if row["seconds"] is None else format_duration(timedelta(seconds=row["seconds"])),
            row["worker"] or "",
        ]
        for row in rows
    ]
    errors = [first_line(row["error"] or row["error_class"] or "") for row in rows]
    write_table(COLUMNS, cells, below=errors, title="error")
    if missing:
        write(f"{missing} more of which no record is kept")


def job_lines(
    facts: dict[str, Any], tries: int, now: datetime, first: Sequence[str] = _FIRST
) -> Iterator[tuple[str, str]]:
    """The facts that are not empty, formatted for a person; those that `first` names at the top."""
    for name in dict.fromkeys((*first, *facts)):
        value = facts[name]
        if name == "attempts":
            failed = f", {value} failed" if value else ""
            value = f"{tries} of {facts['max_attempts'] or 'the default'}{failed}"
        elif name in ("payload", "result"):
            value = _stored(facts, name)
        elif name in _SECONDS and value is not None:
            value = format_duration(timedelta(seconds=value))
        elif name == "progress" and value is not None:
            value = _progress(value, now)
        if name in _NOT_LINES or value in (None, "", [], {}) or (name in _ZERO_IS_NOTHING and not value):
            continue
        yield _SECONDS.get(name, name.replace("_", " ")), _written(value, now)


def _stored(facts: dict[str, Any], name: str) -> Any:
    """The payload or the result as text."""
    value, size = facts[name], facts[f"{name}_bytes"]
    if name in facts["hidden"]:
        return f"({size} bytes, hidden; use --show-payload)"
    if isinstance(value, msgspec.Raw):
        return bytes(value).decode()
    return value if size is None else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _progress(found: dict[str, Any], now: datetime) -> str:
    total = "" if found["total"] is None else f" of {found['total']:g}"
    note = f" ({one_line(found['note'])})" if found["note"] else ""
    return f"{found['done']:g}{total}{note}, {relative(found['at'], now)}".removesuffix(", ")


def _written(value: Any, now: datetime) -> str:
    if isinstance(value, datetime):
        return with_distance(value, now)
    if isinstance(value, list):
        return ", ".join(value) if len(value) < 3 else "\n".join(value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text}" for name, text in value.items())
    return str(value)
