"""`taskharbor audit`: who changed what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from taskharbor.cli.errors import as_usage_error
from taskharbor.cli.options import choose_time, page_options, since, time, word
from taskharbor.cli.output import Column, write_json, write_table
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.base import Driver
from taskharbor.model.audit import AuditEntry
from taskharbor.ops import json_output
from taskharbor.ops.operations import outcome_of, what_of
from taskharbor.store.audit import read_audit
from taskharbor.store.text import format_moment

COLUMNS = (
    Column("when", whole=True),
    Column("by"),
    Column("action", whole=True),
    Column("outcome", whole=True),
    Column("what"),
)


@click.command()
@since("Only what was done at this time or later")
@time("--until", "Only what was done before this time.")
@word("--by", "NAME", "Only what this person did.")
@page_options
@shared
def audit(target: Target, **query: Any) -> None:
    """Show who changed what, the newest first. Entries are kept for 90 days.

    It has every change by a command, the dashboard or a program, and every payload that was shown; a program's cancel
    of a single job only with by=. The name is $TASKHARBOR_BY, or the user and the machine. An action that has only
    begun was cut short by a crash, or is under way.

    \b
    Examples:
      taskharbor audit --since 1d
      taskharbor audit --by ada --output json

    JSON: {"entries": [{"id", "at", "by", "action", "target", "ids", "n", "filter", "options", "done", "refused",
    "status"}], "cursor"}. ids: at most 20 of the n jobs that were named. status: of an operation, else null.
    """

    async def read(driver: Driver, now: datetime) -> tuple[list[AuditEntry], str | None]:
        with as_usage_error("--", ValueError):
            return await read_audit(driver, **choose_time(query, now))

    entries, cursor = call_store(target, read)
    if target.json:
        write_json({"entries": [json_output.audit_entry(entry) for entry in entries], "cursor": cursor})
        return
    if entries:
        rows = [[format_moment(e.at), e.by, e.action, outcome_of(e), what_of(e)] for e in entries]
        write_table(COLUMNS, rows)
    else:
        click.echo("nothing was changed" if cursor is None else "nothing found yet", err=True)
    if cursor is not None:
        click.echo(f"more: --cursor {cursor}", err=True)
