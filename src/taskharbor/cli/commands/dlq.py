"""`taskharbor dlq`: list and requeue dead jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from taskharbor.cli import json_output
from taskharbor.cli.bulk import BulkResult, finish, meant
from taskharbor.cli.commands.list import filter_options, more, page_options, read_page, tries
from taskharbor.cli.confirm import confirm
from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import at_terminal, write_json, write_table
from taskharbor.cli.redaction import HIDDEN
from taskharbor.cli.store import call_store
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target, shared
from taskharbor.cli.timefmt import relative
from taskharbor.drivers.contract import Driver
from taskharbor.model.job import State
from taskharbor.ops.ids import without_payloads

BATCH_JOBS = 500
COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("type", tail=True),
    Column("queue"),
    Column("tries", whole=True),
    Column("died", whole=True, times=True),
)


@click.group()
def dlq() -> None:
    """List dead jobs and requeue them."""


@dlq.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("--type", metavar="TYPE", help="Only jobs of this type.")
@filter_options
@page_options
@shared
def list_(target: Target, **query: Any) -> None:
    """List the dead jobs and why they died.

    \b
    Examples:
      taskharbor dlq list --newest --since 1d
      taskharbor dlq list --queue mail --output json

    JSON: as for `taskharbor list`, with "last_error" for each job.
    """
    page, now = read_page(target, payloads=True, state=State.DLQ, **query)
    if target.json:
        write_json({"jobs": [json_output.dead(info) for info in page.items], "cursor": page.cursor})
        return
    if not page.items:
        more(page, "dead jobs")
        return
    rows = [
        [info.job.id, info.job.type, info.job.queue, tries(info), relative(info.job.finished_at, now)]
        for info in page.items
    ]
    reasons = [HIDDEN.why(info.job) for info in page.items]
    if at_terminal():
        write_table(COLUMNS, rows, below=reasons)
    else:
        write_table((*COLUMNS, Column("reason")), [[*row, why] for row, why in zip(rows, reasons, strict=True)])
    more(page)


@dlq.command()
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option(
    "--all", "everything", is_flag=True, help="Requeue all dead jobs, or those that match --queue and --type."
)
@click.option("--queue", metavar="NAME", help="With --all: only jobs in this queue.")
@click.option("--type", "type_", metavar="TYPE", help="With --all: only jobs of this type.")
@click.option(
    "--keep-attempts", is_flag=True, help="Keep the count of failures, so that the next failure may be final."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@shared
def requeue(
    target: Target,
    ids: tuple[str, ...],
    everything: bool,
    queue: str | None,
    type_: str | None,
    keep_attempts: bool,
    yes: bool,
) -> None:
    """Requeue dead jobs, with all attempts available again. --all asks for confirmation.

    \b
    Examples:
      taskharbor dlq requeue 01JQZ5X7T0A8
      taskharbor dlq requeue --all --queue mail --yes

    JSON: {"done": [ID], "refused": [{"id", "error"}]}. Exit 1 if a job was refused.
    """
    if bool(ids) == everything:
        raise usage_error("dlq requeue: expected job ids, or --all")
    if (queue or type_) and not everything:
        raise usage_error("dlq requeue: --queue and --type need --all")

    async def by_id(driver: Driver, now: datetime) -> BulkResult:
        whole, result = found
        return result.plus(whole, await driver.requeue(whole, now, reset_attempts=not keep_attempts))

    async def by_page(driver: Driver, now: datetime) -> BulkResult:
        result = BulkResult()
        cursor: str | None = None
        while True:
            page = await driver.list(
                queue=queue,
                type=type_,
                state=State.DLQ,
                cursor=cursor,
                limit=BATCH_JOBS,
                now=now,
                **without_payloads(driver),
            )
            dead = [info.job.id for info in page.items]
            result += BulkResult.of(dead, await driver.requeue(dead, now, reset_attempts=not keep_attempts))
            cursor = page.cursor
            if cursor is None:
                return result

    found = meant(target, ids)
    if everything:
        which = "".join((f" in the queue {queue}" if queue else "", f" of type {type_}" if type_ else ""))
        confirm(f"Requeue every dead job{which}?", yes)
    finish(call_store(target, by_page if everything else by_id), "requeued", target)
