"""`taskharbor inspect`: show one job in full."""

from __future__ import annotations

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.job_output import write_job
from taskharbor.cli.options import flag, payload_options
from taskharbor.cli.target import Target, shared
from taskharbor.store.redaction import Redaction


@click.command()
@click.argument("positional", metavar="ID", required=False)
@click.option("--id", "named", metavar="ID", help="The job's id; the same as the argument.")
@flag("--steps", "The steps of its handler that are stored, too.")
@payload_options
@shared
def inspect(
    target: Target, positional: str | None, named: str | None, steps: bool, show_payload: bool, redact: tuple[str, ...]
) -> None:
    """Show one job: its record, its state, its progress and every execution.

    The payload and the result are hidden, and payload values are masked in error texts, unless --show-payload or
    --redact is given.

    \b
    Examples:
      taskharbor inspect 01JQZ5X7T0A8C2E4G6J8M0P2R4
      taskharbor inspect 01JQZ5X7T0A8 --show-payload
      taskharbor inspect 01JQZ5X7T0A8 --redact card --redact pin
      taskharbor inspect 01JQZ5X7T0A8 --steps

    JSON: {"id", "type", "queue", "state", "priority", "attempts", "max_attempts", "run_at", "created_at",
    "finished_at", "group", "flow_id", "worker", "lease_expires_at", "reason", "timeout", "deliveries", "lost",
    "idempotency_key", "group_limit", "depends_on", "waiting_for", "handed_to", "metadata", "failed_at",
    "last_error", "payload_bytes", "payload", "result_bytes", "result", "hidden", "began_at", "ran_on",
    "waited_seconds", "ran_seconds", "error_class", "fingerprint", "edits", "keep_for", "progress", "executions",
    "missing"}. attempts: the failures so far. began_at and ran_on: the newest execution. progress: null or
    [done, total, note, at] by name. executions and missing: as for `taskharbor job attempts`. With --steps also
    "steps": [{"name", "at", "size", "execution", "value"}]; a value is null unless payloads are shown.
    """
    id = positional or named
    if id is None or (positional and named and positional != named):
        raise usage_error("inspect: expected the id of one job: taskharbor inspect ID")
    write_job(target, id, Redaction.of(show_payload, redact), steps=steps)
