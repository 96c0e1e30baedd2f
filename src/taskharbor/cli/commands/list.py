"""`taskharbor list`: list jobs, one page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from taskharbor.cli import options as opt
from taskharbor.cli.errors import as_usage_error
from taskharbor.cli.output import Column, write_json, write_table
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.base import Driver
from taskharbor.model.error_class import error_query
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.job_view import tries_of
from taskharbor.store.ids import flow_id
from taskharbor.store.pages import ItemsPage, fill_page
from taskharbor.store.text import relative

COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("type", tail=True),
    Column("queue"),
    Column("state", whole=True),
    Column("tries", whole=True),
    Column("when", whole=True, times=True),
)
state_option = opt.choice("--state", json_output.STATES, "Only jobs in this state.")


def read_page(
    target: Target, *, newest: bool = False, payloads: bool, **query: Any
) -> tuple[ItemsPage[JobInfo], datetime]:
    """A page of jobs, and the store's time; a usage error names the option that is wrong."""

    async def read(driver: Driver, now: datetime) -> tuple[ItemsPage[JobInfo], datetime]:
        given = {name: value for name, value in opt.choose_time(query, now).items() if value is not None}
        if "flow_id" in given:
            given["flow_id"] = await flow_id(driver, given["flow_id"], now)
        if "error" in given:
            given |= error_query(given.pop("error"))
        with as_usage_error("--", ValueError):
            order = "-id" if newest else "id"
            return await fill_page(driver.list, now=now, order=order, payloads=payloads, **given), now

    return call_store(target, read)


@click.command("list")
@opt.queue_option
@state_option
@opt.type_option
@opt.group_option
@opt.word("--flow", "ID", "Only jobs of this workflow.", "flow_id")
@opt.newest_option
@opt.ended_options
@opt.page_options
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
        return f"began {relative(began, now)}" if began else f"lease ends {relative(info.lease_expires_at, now)}"
    if info.state.terminal:
        return relative(job.finished_at, now)
    return f"added {relative(job.created_at, now)}"


def more(page: ItemsPage[Any], what: str = "jobs") -> None:
    """Print how to get the next page, or that there is nothing; on stderr, so that a pipe gets rows only."""
    if page.cursor is not None:
        text = f"more {what}" if page.items else f"no {what} found yet, but there are more to look at"
        click.echo(f"{text}: --cursor {page.cursor}", err=True)
    elif not page.items:
        click.echo(f"no {what}", err=True)
