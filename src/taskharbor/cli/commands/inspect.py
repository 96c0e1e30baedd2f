"""`taskharbor inspect`: show one job in full."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec

from taskharbor.cli import json_output
from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import write_facts, write_json
from taskharbor.cli.redaction import Redaction
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.cli.timefmt import with_distance
from taskharbor.drivers.contract import Driver
from taskharbor.model.job import JobInfo


@click.command()
@click.argument("positional", metavar="ID", required=False)
@click.option("--id", "named", metavar="ID", help="The job's id; the same as the argument.")
@click.option("--show-payload", is_flag=True, help="Show the payload and the result, which are hidden by default.")
@click.option(
    "--redact", multiple=True, metavar="FIELD", help="Show them, but mask this field at any depth (repeatable)."
)
@shared
def inspect(
    target: Target, positional: str | None, named: str | None, show_payload: bool, redact: tuple[str, ...]
) -> None:
    """Show one job: its full record and its state.

    The payload and the result are hidden, and payload values are masked in error texts, unless --show-payload or
    --redact is given.

    \b
    Examples:
      taskharbor inspect 01JQZ5X7T0A8C2E4G6J8M0P2R4
      taskharbor inspect --id 01JQZ5X7T0A8C2E4G6J8M0P2R4 --show-payload
      taskharbor inspect 01JQZ5X7T0A8C2E4G6J8M0P2R4 --redact card --redact pin

    JSON: {"id", "type", "queue", "state", "priority", "attempts", "max_attempts", "run_at", "created_at",
    "finished_at", "group", "flow_id", "worker", "lease_expires_at", "reason", "timeout", "deliveries", "lost",
    "idempotency_key", "group_limit", "depends_on", "waiting_for", "handed_to", "metadata", "failed_at",
    "last_error", "payload_bytes", "payload", "result_bytes", "result", "hidden"}
    """
    id = positional or named
    if id is None or (positional and named and positional != named):
        raise usage_error("inspect: expected the id of one job: taskharbor inspect ID")

    async def read_job(driver: Driver, now: datetime) -> tuple[JobInfo, datetime]:
        return await driver.inspect(id, now), now

    info, now = call_store(target, read_job)
    facts = json_output.whole(info, Redaction.of(show_payload, redact))
    if target.json:
        write_json(facts, one=any(isinstance(facts[name], msgspec.Raw) for name in ("payload", "result")))
    else:
        write_facts(_lines(facts, now))


def _lines(facts: dict[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    """The facts that are not empty, formatted for a person."""
    for name, value in facts.items():
        if name == "attempts":
            value = f"{value} of {facts['max_attempts'] or 'the default'}"
        elif name in ("payload", "result"):
            size = facts[f"{name}_bytes"]
            if name in facts["hidden"]:
                value = f"({size} bytes, hidden; use --show-payload)"
            elif isinstance(value, msgspec.Raw):
                value = bytes(value).decode()
            elif size is not None:
                value = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        elif name == "timeout" and value is not None:
            value = f"{value:g} s"
        if name in ("max_attempts", "payload_bytes", "result_bytes", "hidden") or value in (None, "", [], {}):
            continue
        if name in ("priority", "lost") and not value:
            continue
        yield name.replace("_", " "), _written(value, now)


def _written(value: Any, now: datetime) -> str:
    if isinstance(value, datetime):
        return with_distance(value, now)
    if isinstance(value, list):
        return ", ".join(value) if len(value) < 3 else "\n".join(value)
    if isinstance(value, dict):
        return "\n".join(f"{name}: {text}" for name, text in value.items())
    return str(value)
