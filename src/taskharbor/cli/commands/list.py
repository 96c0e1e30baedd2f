"""`taskharbor list`: list jobs, one page at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import write_json, write_table
from taskharbor.cli.selection import ERROR_HELP
from taskharbor.cli.store import call_store
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target, shared
from taskharbor.cli.time_options import parse_time
from taskharbor.drivers.base import Driver
from taskharbor.model.error_class import error_query
from taskharbor.model.job import FlowPage, JobInfo, Page, State
from taskharbor.ops import json_output
from taskharbor.ops.ids import flow_id
from taskharbor.ops.job_view import tries_of
from taskharbor.ops.listing import find_page
from taskharbor.ops.timefmt import relative

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("type", tail=True),
    Column("queue"),
    Column("state", whole=True),
    Column("tries", whole=True),
    Column("when", whole=True, times=True),
)

ASKED = {
    "newest": "--newest",
    "since": "--since",
    "until": "--until",
    "error": "--error",
    "fingerprint": "--fingerprint",
}
"""The options that not every driver can serve, by the name of the filter."""


def page_options(command: F) -> F:
    """Add the options of a command that lists something page by page."""
    limit = click.option(
        "--limit", type=click.IntRange(1, 10_000), metavar="N", default=50, show_default=True, help="Rows per page."
    )
    return limit(click.option("--cursor", metavar="CURSOR", help="Continue after the previous page.")(command))


def filter_options(command: F) -> F:
    """Add the options of a command that lists jobs by their errors and times."""
    for option in (
        click.option("--fingerprint", metavar="TEXT", help="Only jobs whose last error has this fingerprint."),
        click.option("--error", metavar="CLASS", help=ERROR_HELP),
        click.option("--until", callback=parse_time, metavar="TIME", help="The same, before this time."),
        click.option(
            "--since",
            callback=parse_time,
            metavar="TIME",
            help="Only jobs that ended at this time or later; unfinished ones: that were created then. 2h and 1d mean "
            "that long ago; a moment is 2030-01-31T09:00:00Z.",
        ),
        click.option("--newest", is_flag=True, help="The newest job first."),
    ):
        command = option(command)
    return command


def choose_time(query: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The query with "that long ago" as a moment."""
    times = {name: now - query[name] for name in ("since", "until") if isinstance(query.get(name), timedelta)}
    return {**query, **times}


def read_page(target: Target, *, newest: bool = False, payloads: bool, **query: Any) -> tuple[Page, datetime]:
    """A page of jobs, and the store's time; a usage error names the option that is wrong."""

    async def read(driver: Driver, now: datetime) -> tuple[Page, datetime]:
        given = {name: value for name, value in choose_time(query, now).items() if value is not None}
        if "flow_id" in given:
            given["flow_id"] = await flow_id(driver, given["flow_id"], now)
        if "error" in given:
            given |= error_query(given.pop("error"))
        try:
            return await find_page(driver, now, order="-id" if newest else "id", payloads=payloads, **given), now
        except ValueError as error:
            raise usage_error(f"--{error}") from error

    return call_store(target, read)


@click.command("list")
@click.option("--queue", metavar="NAME", help="Only jobs in this queue.")
@click.option("--state", type=click.Choice(json_output.STATES), help="Only jobs in this state.")
@click.option("--type", metavar="TYPE", help="Only jobs of this type.")
@click.option("--group", metavar="NAME", help="Only jobs of this group.")
@click.option("--flow", "flow_id", metavar="ID", help="Only jobs of this workflow.")
@filter_options
@page_options
@shared
def list_(target: Target, **query: Any) -> None:
    """List jobs in the order of their ids, which is the order in which they were created.

    It looks at 100,000 jobs at most: with filters a page may be short and still have a next one.

    \b
    Examples:
      taskharbor list --queue mail --state ready
      taskharbor list --newest --state dlq --since 2h --error ConnectionError
      taskharbor list --output json --cursor CURSOR

    JSON: {"jobs": [{"id", "type", "queue", "state", "priority", "attempts", "max_attempts", "run_at", "created_at",
    "finished_at", "group", "flow_id", "worker", "lease_expires_at", "reason"}], "cursor"}. cursor is null on the last
    page.
    """
    page, now = read_page(target, payloads=target.json, **query)
    if target.json:
        write_json({"jobs": [json_output.summary(info) for info in page.items], "cursor": page.cursor})
        return
    if page.items:
        write_table(COLUMNS, rows(page.items, now))
    more(page)


def rows(items: Sequence[JobInfo], now: datetime) -> list[list[str]]:
    """Jobs as rows of a table."""
    return [[i.job.id, i.job.type, i.job.queue, i.state.value, tries(i), when(i, now)] for i in items]


def tries(info: JobInfo) -> str:
    """Attempts used so far, and the maximum."""
    return f"{tries_of(info)}/{info.job.max_attempts}" if info.job.max_attempts else str(tries_of(info))


def when(info: JobInfo, now: datetime) -> str:
    """The time that matters most in the job's state."""
    job = info.job
    if info.state is State.SCHEDULED:
        return f"due {relative(job.run_at, now)}"
    if info.state is State.INFLIGHT:
        began = job.began_at
        return (
            f"lease ends {relative(info.lease_expires_at, now)}" if began is None else f"began {relative(began, now)}"
        )
    if info.state.terminal:
        return relative(job.finished_at, now)
    return f"added {relative(job.created_at, now)}"


def more(page: Page | FlowPage, what: str = "jobs") -> None:
    """Print how to get the next page, or that there is nothing; on stderr, so that a pipe gets rows only."""
    if page.cursor is not None:
        told = f"more {what}" if page.items else f"no {what} found yet, but there are more to look at"
        click.echo(f"{told}: --cursor {page.cursor}", err=True)
    elif not page.items:
        click.echo(f"no {what}", err=True)
