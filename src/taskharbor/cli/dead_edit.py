"""`dlq edit`: change the payload of a dead job, in an editor or with --json, and bring it back.

The job must still be as it was when its payload was read. If it is not, nothing is changed, and the text stays in its
file.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import click
import msgspec

from taskharbor.cli.acting import Operator, act, reveal
from taskharbor.cli.amending import codec_of
from taskharbor.cli.draft import Draft
from taskharbor.cli.errors import EXIT_USAGE, CommandError, usage_error
from taskharbor.cli.json_argument import checked_json, read_json
from taskharbor.cli.output import write, write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.codec import Codec, JsonCodec
from taskharbor.model.errors import DriverError, WrongState
from taskharbor.model.job import JobInfo, JobRecord, Seen, State
from taskharbor.ops.redaction import Redaction
from taskharbor.tasks.payload_edit import edit_payload
from taskharbor.tasks.signature import Signature


def edit_dead(target: Target, typed: str, json: str | None, *, requeue: bool) -> None:
    """Change the payload of a dead job, and print that it was changed."""
    data = None if json is None else read_json(json, "--json")

    async def read(driver: Driver, now: datetime) -> JobInfo:
        from taskharbor.ops.dead_view import read_dead

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
    click.echo(f"try: taskharbor dlq edit {job.id} --json - < {path}", err=True)


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
    try:
        if signature is None:
            payload = msgspec.json.format(data, indent=-1)
        else:
            payload = edit_payload(msgspec.structs.replace(job, payload=codec.encode({})), value, codec, signature)
    except (TypeError, ValueError) as error:
        raise usage_error(f"dlq edit: {error}") from error
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
                f"`taskharbor inspect {job.id}` shows it"
            )
        await operator.actions.amend(amend, requeue=requeue)

    act(target, change)
    if target.json:
        sizes = {"payload_bytes_before": len(job.payload), "payload_bytes": len(payload)}
        write_json({"id": job.id, "requeued": requeue, **sizes})
        return
    sizes_text = f"{len(job.payload)} bytes, now {len(payload)}"
    write(f"{job.id} was changed{' and requeued' if requeue else ''} (its payload had {sizes_text})")
    if not requeue:
        write(f"try: taskharbor dlq requeue {job.id}")
