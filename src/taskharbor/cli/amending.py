"""Changing a stored job: `job amend`, and `dlq edit`, which changes the payload of a dead job in an editor.

The job is read, the person confirms or edits, and then it is changed only if it is still as it was read. If it is not,
nothing is changed, and an edited text stays in its file.
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from taskharbor.cli.asking import Draft, confirm
from taskharbor.cli.errors import EXIT_USAGE, CommandError, as_usage_error, usage_error
from taskharbor.cli.job_output import read_one
from taskharbor.cli.options import checked_json, read_json
from taskharbor.cli.output import Column, write, write_answer, write_json, write_table
from taskharbor.cli.store import Operator, act, call_store, reveal
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.deep_json import read as read_value
from taskharbor.model.errors import DriverError, WrongState
from taskharbor.model.job import JobInfo, JobRecord, Seen, State
from taskharbor.model.times import round_up
from taskharbor.ops import job_edit
from taskharbor.store.redaction import Redaction
from taskharbor.store.text import command, format_duration, format_moment, one_line, shell_word
from taskharbor.tasks.payload_edit import edit_payload
from taskharbor.tasks.signature import Signature

COLUMNS = (Column("field", whole=True), Column("before"), Column("after"))
_WHEN = ("run_at", "delay", "at_once")


# `job amend`


def amend_job(target: Target, typed: str, options: dict[str, Any], *, yes: bool) -> None:
    """Change a job as the options say, and print the changes."""
    _check(options)
    payload = options["payload_json"]
    data = None if payload is None else read_json(payload, "--payload-json")
    info, now = read_one(target, typed)
    job_edit.expect_amendable(info)
    amend = _amend(target, info, options, data, now)
    changes = _changes(info.job, amend)
    if not changes:
        raise usage_error("job amend: the job already has these values; nothing was changed")
    if not target.json:
        rows = [[field, _text(field, before), _text(field, after)] for field, before, after in changes]
        write_table(COLUMNS, rows)
    confirm(f"Change job {info.job.id} ({info.job.type}, {info.state})?", yes)

    act(target, lambda operator: operator.actions.amend(amend))
    if target.json:
        rows_json = [{"field": field, "before": _plain(old), "after": _plain(new)} for field, old, new in changes]
        write_json({"id": info.job.id, "changes": rows_json})
    else:
        write(f"{one_line(info.job.id)} was changed")


def _check(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if not (value is None or value is False or value == ())]
    if not given:
        raise usage_error("job amend: expected at least one change, such as --priority 10")
    when = [f"--{'now' if name == 'at_once' else name.replace('_', '-')}" for name in given if name in _WHEN]
    if len(when) > 1:
        raise usage_error(f"job amend: expected only one of {' and '.join(when)}")


def _amend(target: Target, info: JobInfo, options: dict[str, Any], data: bytes | None, now: datetime) -> Amend:
    """The amendment of the record that was read."""
    given = {name: options[name] for name in ("priority", "max_attempts", "timeout", "run_at")}
    if options["delay"] is not None:
        given["run_at"] = round_up(now + options["delay"])
    given["metadata"] = _entries(options["metadata"]) or None
    given = {name: None if value == "none" else value for name, value in given.items() if value is not None}
    if options["at_once"]:
        given["run_at"] = None
    if data is not None:
        given["payload"] = msgspec.json.decode(data)
        codec_of(target, info.job, "--payload-json")
    with as_usage_error("", job_edit.BadEdit):
        return job_edit.amendment(target.harbor, info, given)


def _entries(typed: tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for entry in typed:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise usage_error("--metadata: expected KEY=VALUE, or KEY= to remove an entry")
        found[key] = value or None
    return found


def codec_of(target: Target, job: JobRecord, option: str) -> tuple[Codec, Signature | None]:
    """What reads and writes the arguments of a job: the task of --app, else JSON. A usage error if that cannot."""
    if target.harbor is None and not _is_object(job.payload):
        raise usage_error(
            f"{option}: the stored arguments are not a JSON object; pass --app, which can read and write them"
        )
    if target.harbor is not None and job.type not in target.harbor.tasks:
        raise usage_error(f"{option}: {target.app} has no task {job.type!r}; omit --app to change it anyway")
    return job_edit.codec_of(target.harbor, job.type)


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


def _text(field: str, value: Any) -> str:
    if value is None:
        return "at once" if field == "run_at" else "none"
    if field == "payload":
        return f"{value} bytes"
    if isinstance(value, datetime):
        return format_moment(value)
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


# `dlq edit`


def edit_dead(target: Target, typed: str, json: str | None, *, requeue: bool) -> None:
    """Change the payload of a dead job, and print that it was changed."""
    data = None if json is None else read_json(json, "--json")

    async def read(driver: Driver, now: datetime) -> JobInfo:
        from taskharbor.store.situation import read_dead

        info = (await read_dead(driver, typed, now)).info
        await reveal(driver, now, Redaction(show=data is None), [info.job.id])
        return info

    info = call_store(target, read)
    codec, signature = codec_of(target, info.job, "dlq edit")
    if data is not None:
        _change(target, info, _payload(info.job, data, codec, signature), requeue)
        return
    with Draft(_readable(info.job, codec)) as draft:
        payload = _edited(draft, info.job, codec, signature)
        try:
            _change(target, info, payload, requeue)
        except DriverError:
            _kept(draft, info.job)
            raise


def _edited(draft: Draft, job: JobRecord, codec: Codec, signature: Signature | None) -> bytes:
    """The payload that a person saved; at a terminal they may try again after a mistake."""
    while True:
        saved = draft.edit()
        try:
            return _payload(job, checked_json(saved, "dlq edit: expected a JSON object"), codec, signature)
        except CommandError as error:
            if error.code != EXIT_USAGE:
                raise
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                _kept(draft, job)
                raise
            click.echo(f"taskharbor: {error.format_message()}", err=True)
            if not click.confirm("Open the editor again?", default=True, err=True):
                _kept(draft, job)
                raise CommandError("nothing was changed") from error


def _kept(draft: Draft, job: JobRecord) -> None:
    path = draft.keep()
    click.echo(f"your text is kept in {path}", err=True)
    click.echo(f"try: {command('dlq edit', job.id, options=['--json', '-'])} < {shell_word(path)}", err=True)


def _readable(job: JobRecord, codec: Codec) -> str:
    """The payload as JSON of several lines. Numbers stay as they are written."""
    try:
        data = job.payload if type(codec) is JsonCodec else msgspec.json.encode(codec.decode(job.payload))
        return msgspec.json.format(data, indent=2).decode() + "\n"
    except (ValueError, TypeError, RecursionError) as error:
        raise CommandError(
            f"the payload of job {job.id} cannot be shown as JSON ({type(error).__name__}); `taskharbor job amend "
            "--payload-json` replaces arguments by name"
        ) from error


def _payload(job: JobRecord, data: bytes, codec: Codec, signature: Signature | None) -> bytes:
    """The whole new payload; a usage error if it does not fit the task."""
    value = msgspec.json.decode(data)
    if not isinstance(value, dict):
        raise usage_error(f"dlq edit: expected a JSON object with the arguments by name, got {_named(value)}")
    with as_usage_error("dlq edit: "):
        if signature is None:
            payload = msgspec.json.format(data, indent=-1)
        else:
            payload = edit_payload(msgspec.structs.replace(job, payload=codec.encode({})), value, codec, signature)
    if payload == job.payload or _same(job.payload, payload):
        raise CommandError(f"the payload of job {job.id} is as it was; nothing was changed")
    return payload


def _same(before: bytes, after: bytes) -> bool:
    try:
        return msgspec.json.format(before, indent=-1) == msgspec.json.format(after, indent=-1)
    except (ValueError, RecursionError):
        return False


def _named(value: Any) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")


def _change(target: Target, info: JobInfo, payload: bytes, requeue: bool) -> None:
    job = info.job
    amend = Amend(id=job.id, deliveries=job.deliveries, edits=job.edits, payload=payload)

    async def change(operator: Operator) -> None:
        now = await operator.driver.inspect(job.id, operator.now)
        if now.state is not State.DLQ or Seen.of(now) != Seen.of(info):
            raise WrongState(
                f"job {job.id} was changed since its payload was read: it is {now.state} now; nothing was changed. "
                f"`{command('inspect', job.id)}` shows it"
            )
        await operator.actions.amend(amend, requeue=requeue)

    act(target, change)
    sizes = {"payload_bytes_before": len(job.payload), "payload_bytes": len(payload)}
    done = f"{job.id} was changed{' and requeued' if requeue else ''}"
    text = f"{done} (its payload had {len(job.payload)} bytes, now {len(payload)})"
    if not requeue:
        text += f"\ntry: {command('dlq requeue', job.id)}"
    write_answer(target, {"id": job.id, "requeued": requeue, **sizes}, text)
