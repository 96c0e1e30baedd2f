"""`taskharbor enqueue`: one job, by the name of its type."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli import when
from taskharbor.cli.fault import wrong
from taskharbor.cli.output import write_json
from taskharbor.cli.target import Target, shared

if TYPE_CHECKING:
    from taskharbor.client.handle import JobHandle
    from taskharbor.tasks.prepare import Call


@click.command()
@click.option("--job", "name", required=True, metavar="TYPE", help="The job's type: the name of a task or handler.")
@click.option("--json", "payload", default="{}", metavar="JSON", help="The arguments by name; - reads them from stdin.")
@click.option("--queue", metavar="NAME", help="Default: the task's own queue with --app, else 'default'.")
@click.option("--run-at", callback=when.moment, metavar="MOMENT", help="Not before: 2030-01-31T09:00:00Z.")
@click.option("--delay", callback=when.span, metavar="DURATION", help="Not before so long from now: 90, 90s, 15m, 2h.")
@click.option("--idempotency-key", metavar="KEY", help="A key already known in the queue stores nothing new.")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="So many failures are final.")
@click.option("--timeout", callback=when.span, metavar="DURATION", help="How long an attempt may take.")
@click.option("--priority", type=int, metavar="N", help="Higher first within its queue; default 0.")
@click.option("--group", metavar="NAME", help="Jobs of a group start in order, at most its limit at once.")
@click.option("--group-limit", type=click.IntRange(1), metavar="N", help="The group's limit, if it has none yet.")
@shared
def enqueue(target: Target, name: str, payload: str, **options: Any) -> None:
    """Store a job, and print its id.

    With --app the arguments are checked against the task's parameters, and its own options hold.

    \b
    Examples:
      taskharbor enqueue --job echo --json '{"text": "hello"}'
      taskharbor enqueue --app tasks:harbor --job tasks.mail --json "{}"
      taskharbor enqueue --job report --delay 15m --idempotency-key report:1
      produce | taskharbor enqueue --job load --json -

    JSON: {"id", "type", "queue", "existed"}. existed: the key or id was known, and this is the job that was there.
    """
    given = {option: value for option, value in options.items() if value is not None}
    call = _call(target, name, _read(payload), given)
    target.refuse_memory(click.get_current_context().command_path)
    handle = asyncio.run(_send(target, call))
    if target.json:
        queue = call.options.queue or _default_queue(target)
        write_json({"id": handle.id, "type": call.type, "queue": queue, "existed": handle.existed})
        return
    click.echo(handle.id)
    if handle.existed:
        click.echo("it was there already: the idempotency key is known in that queue", err=True)


async def _send(target: Target, call: Call) -> JobHandle[Any]:
    from taskharbor.client.client import Client

    client = Client(target.driver(), default_queue=_default_queue(target))
    try:
        return (await client.aenqueue_calls([call]))[0]
    finally:
        await client.aclose()


def _call(target: Target, name: str, payload: bytes, options: dict[str, Any]) -> Call:
    """The call, checked: against the task where there is an app, else only as JSON."""
    from taskharbor.client.request import JobRequest
    from taskharbor.model.codec import JsonCodec
    from taskharbor.tasks.prepare import Call

    harbor = target.harbor
    try:
        if harbor is None:
            bare = JobRequest(type=name, **options).call(JsonCodec())
            return Call(bare.type, payload, bare.options)  # the bytes as they were typed: no number is rounded
        task = harbor.tasks.get(name)
        if task is None:
            known = ", ".join(sorted(harbor.tasks)) or "none"
            raise wrong(f"--job: {target.app} has no task {name!r}; it has: {known}. Leave --app out to send it anyway")
        value = harbor.codec.decode(payload)
        changed = task.options(**options)
        return (changed.s(**value) if isinstance(value, dict) else changed.s(value)).call()
    except (TypeError, ValueError) as error:
        raise wrong(str(error)) from error


def _read(payload: str) -> bytes:
    """The JSON text, checked. What is wrong with it is told without repeating it."""
    import msgspec

    data = sys.stdin.buffer.read() if payload == "-" else payload.encode(errors="surrogateescape")
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error).split(":")[-1].strip()
        if isinstance(error, UnicodeDecodeError):
            why = "not UTF-8"
        raise wrong(f'--json: expected JSON such as \'{{"to": "ada"}}\', got text that is not ({why})') from None
    return data.strip()


def _default_queue(target: Target) -> str:
    from taskharbor.model.job import DEFAULT_QUEUE

    return DEFAULT_QUEUE if target.harbor is None else target.harbor.client.default_queue
