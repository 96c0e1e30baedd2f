"""`taskharbor list`: list jobs, one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from taskharbor.cli import json_output
from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import write_json, write_table
from taskharbor.cli.store import call_store
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target, shared
from taskharbor.cli.timefmt import relative
from taskharbor.drivers.contract import Driver
from taskharbor.model.job import JobInfo, Page, State

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (
    Column("id", whole=True),
    Column("type", tail=True),
    Column("queue"),
    Column("state", whole=True),
    Column("tries", whole=True),
    Column("when", whole=True),
)


def page_options(command: F) -> F:
    """Add the options of a command that lists jobs page by page."""
    limit = click.option(
        "--limit", type=click.IntRange(1, 10_000), metavar="N", default=50, show_default=True, help="Jobs per page."
    )
    return limit(click.option("--cursor", metavar="CURSOR", help="Continue after the previous page.")(command))


def read_page(target: Target, **query: Any) -> tuple[Page, datetime]:
    """A page of `Driver.list`, and the store's time; a usage error names the option that is wrong."""

    async def read(driver: Driver, now: datetime) -> tuple[Page, datetime]:
        try:
            return await driver.list(now=now, **query), now
        except ValueError as error:
            raise usage_error(f"--{error}") from error

    return call_store(target, read)


@click.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("--state", type=click.Choice(json_output.STATES), help="Only jobs in this state.")
@click.option("--type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--group", metavar="NAME", help="Only jobs of this group.")
@click.option("--flow", "flow_id", metavar="ID", help="Only jobs of this workflow.")
@page_options
@shared
def list_(target: Target, **query: Any) -> None:
    """List jobs in the order of their ids, which is the order in which they were created.

    \b
    Examples:
      taskharbor list --queue mail --state ready
      taskharbor list --state scheduled --limit 10
      taskharbor list --output json --cursor CURSOR

    JSON: {"jobs": [{"id", "type", "queue", "state", "priority", "attempts", "max_attempts", "run_at", "created_at",
    "finished_at", "group", "flow_id", "worker", "lease_expires_at", "reason"}], "cursor"}. cursor is null on the last
    page.
    """
    page, now = read_page(target, **query)
    if target.json:
        write_json({"jobs": [json_output.summary(info) for info in page.items], "cursor": page.cursor})
        return
    if not page.items:
        click.echo("no jobs", err=True)
        return
    write_table(COLUMNS, rows(page.items, now))
    more(page.cursor)


def rows(items: Sequence[JobInfo], now: datetime) -> list[list[str]]:
    """Jobs as rows of a table."""
    return [[i.job.id, i.job.type, i.job.queue, i.state.value, tries(i), when(i, now)] for i in items]


def tries(info: JobInfo) -> str:
    """Failures so far, and the maximum."""
    return f"{info.job.attempts}/{info.job.max_attempts}" if info.job.max_attempts else str(info.job.attempts)


def when(info: JobInfo, now: datetime) -> str:
    """The time that matters most in the job's state."""
    job = info.job
    if info.state is State.SCHEDULED:
        return f"due {relative(job.run_at, now)}"
    if info.state is State.INFLIGHT:
        return f"lease ends {relative(info.lease_expires_at, now)}"
    if info.state.terminal:
        return relative(job.finished_at, now)
    return f"added {relative(job.created_at, now)}"


def more(cursor: str | None) -> None:
    """Print how to get the next page; on stderr, so that a pipe gets rows only."""
    if cursor is not None:
        click.echo(f"more jobs: --cursor {cursor}", err=True)
