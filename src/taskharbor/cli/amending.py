"""`job amend`: what was asked for, what that changes, and the change itself.

The job is read, the person confirms, and then it is changed only if it was not reserved or amended in between.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from taskharbor.cli.acting import act
from taskharbor.cli.confirm import confirm
from taskharbor.cli.errors import usage_error
from taskharbor.cli.job_output import read_one
from taskharbor.cli.json_argument import read_json
from taskharbor.cli.output import write, write_json, write_table
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target
from taskharbor.client.job_changes import checked_changes
from taskharbor.drivers.refusals import not_amendable
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.deep_json import read as read_value
from taskharbor.model.job import JobInfo, JobRecord, State
from taskharbor.model.times import round_up
from taskharbor.ops.timefmt import format_duration, format_moment
from taskharbor.tasks.signature import Signature

COLUMNS = (Column("field", whole=True), Column("before"), Column("after"))


def amend_job(target: Target, typed: str, options: dict[str, Any], *, yes: bool) -> None:
    """Change a job as the options say, and print the changes."""
    _check(options)
    payload = options["payload_json"]
    data = None if payload is None else read_json(payload, "--payload-json")
    info, now = read_one(target, typed)
    if info.state in (State.DONE, State.INFLIGHT):
        raise not_amendable(info.job.id, info.state)
    amend = _amend(target, info, options, data, now)
    changes = _changes(info.job, amend)
    if not changes:
        raise usage_error("job amend: the job already has these values; nothing was changed")
    if not target.json:
        rows = [[field, _shown(field, before), _shown(field, after)] for field, before, after in changes]
        write_table(COLUMNS, rows)
    confirm(f"Change job {info.job.id} ({info.job.type}, {info.state})?", yes)

    act(target, lambda operator: operator.actions.amend(amend))
    if target.json:
        rows_json = [{"field": field, "before": _plain(old), "after": _plain(new)} for field, old, new in changes]
        write_json({"id": info.job.id, "changes": rows_json})
    else:
        write(f"{info.job.id} was changed")


def _check(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if not (value is None or value is False or value == ())]
    if not given:
        raise usage_error("job amend: expected at least one change, such as --priority 10")
    when = [f"--{'now' if name == 'at_once' else name.replace('_', '-')}" for name in given if name in _WHEN]
    if len(when) > 1:
        raise usage_error(f"job amend: expected only one of {' and '.join(when)}")


_WHEN = ("run_at", "delay", "at_once")


def _amend(target: Target, info: JobInfo, options: dict[str, Any], data: bytes | None, now: datetime) -> Amend:
    """The amendment of the record that was read."""
    run_at: datetime | UnsetType | None = UNSET
    if options["at_once"]:
        run_at = None
    elif options["delay"] is not None:
        run_at = round_up(now + options["delay"])
    elif options["run_at"] is not None:
        run_at = options["run_at"]
    given = {name: _or_unset(options[name]) for name in ("priority", "max_attempts", "timeout")}
    if given["timeout"] == "none":
        given["timeout"] = None
    try:
        changes = checked_changes(
            payload=UNSET if data is None else msgspec.json.decode(data),
            run_at=run_at,
            metadata=_entries(options["metadata"]) or UNSET,
            **given,
        )
        codec, signature = (JsonCodec(), None) if data is None else codec_of(target, info.job, "--payload-json")
        return changes.of(info.job, codec, signature)
    except (TypeError, ValueError) as error:
        raise usage_error(str(error)) from error


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _entries(typed: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for entry in typed:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise usage_error("--metadata: expected KEY=VALUE, or KEY= to remove an entry")
        found[key] = value or None
    return found


def codec_of(target: Target, job: JobRecord, option: str) -> tuple[Codec, Signature | None]:
    """What reads and writes the arguments of a job: the task of --app, else JSON."""
    harbor = target.harbor
    if harbor is None:
        if not _is_object(job.payload):
            raise usage_error(
                f"{option}: the stored arguments are not a JSON object; pass --app, which can read and write them"
            )
        return JsonCodec(), None
    task = harbor.tasks.get(job.type)
    if task is None:
        raise usage_error(f"{option}: {target.app} has no task {job.type!r}; omit --app to change it anyway")
    return harbor.codec, task.handler.signature.of_json()


def _is_object(payload: bytes) -> bool:
    try:
        return isinstance(read_value(payload), dict)
    except ValueError:
        return False


def _changes(job: JobRecord, amend: Amend) -> list[tuple[str, Any, Any]]:
    """Field, old value and new value of each change. Of arguments only the size: they may be secret."""
    found: list[tuple[str, Any, Any]] = []
    for field in amend.changes():
        before, after = getattr(job, field), getattr(amend, field)
        if before == after:
            continue
        if field == "metadata":
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            found += [(f"metadata {key}", before.get(key), after.get(key)) for key in keys]
        elif field == "payload":
            found.append(("payload", len(before), len(after)))
        else:
            found.append((field, before, after))
    return found


def _shown(field: str, value: Any) -> str:
    if value is None:
        return "at once" if field == "run_at" else "none"
    if field == "payload":
        return f"{value} bytes"
    if isinstance(value, datetime):
        return format_moment(value)
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value
