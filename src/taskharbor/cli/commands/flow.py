"""`taskharbor flow`: list workflows, show one as a tree, cancel it, and requeue what failed in it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import click

from taskharbor.cli.asking import confirm
from taskharbor.cli.commands.list import more
from taskharbor.cli.errors import as_usage_error
from taskharbor.cli.options import choice, choose_time, flag, id_argument, page_options, since, time, yes_option
from taskharbor.cli.output import (
    Column,
    at_terminal,
    terminal_width,
    write,
    write_answer,
    write_facts,
    write_json,
    write_table,
)
from taskharbor.cli.store import Operator, act, call_store
from taskharbor.cli.target import Target, shared
from taskharbor.drivers.base import Driver
from taskharbor.model.job import FlowInfo, FlowStatus
from taskharbor.ops import flow_view, json_output
from taskharbor.store.flows import list_flows, read_flow
from taskharbor.store.ids import flow_id
from taskharbor.store.pages import ItemsPage, fill_page
from taskharbor.store.text import command, plural, relative, was, with_distance

COLUMNS = (
    Column("id", whole=True),
    Column("status", whole=True),
    Column("created", whole=True, times=True),
    Column("newest job", whole=True, times=True),
)


@click.group()
def flow() -> None:
    """List, show, cancel and requeue workflows."""


@flow.command("list")
@choice("--status", [status.value for status in FlowStatus], "Only flows with this status.")
@flag("--newest", "The newest flow first.")
@since("Only flows created at this time or later")
@time("--until", "Only flows created before this time.")
@page_options
@shared
def list_(target: Target, newest: bool, **query: Any) -> None:
    """List workflows in the order of their ids, which is the order in which they were created.

    It looks at 10,000 flows at most: with filters a page may be short and still have a next one.

    \b
    Examples:
      taskharbor flow list --newest
      taskharbor flow list --status failed --since 1d

    JSON: {"flows": [{"id", "status", "created_at", "newest_job_at"}], "cursor"}. cursor is null on the last page.
    """

    async def read(driver: Driver, now: datetime) -> tuple[ItemsPage[FlowInfo], datetime]:
        with as_usage_error("--", ValueError):
            order = "-id" if newest else "id"
            return await fill_page(partial(list_flows, driver), now=now, order=order, **choose_time(query, now)), now

    page, now = call_store(target, read)
    if target.json:
        write_json({"flows": [json_output.flow_summary(each) for each in page.items], "cursor": page.cursor})
        return
    if page.items:
        rows = [(f.created_at, f.updated_at) for f in page.items]
        ages = [[relative(moment, now) for moment in each] for each in rows]
        write_table(COLUMNS, [[f.id, f.status.value, *age] for f, age in zip(page.items, ages, strict=True)])
    more(page, "flows")


@flow.command()
@id_argument
@flag("--mermaid", "Print the graph as Mermaid text instead.")
@shared
def show(target: Target, id: str, mermaid: bool) -> None:
    """Show a workflow as a tree: each step stands under the last one that it waits for.

    ID is the flow's id, or the id of a job in it. Five or more jobs of one type in the same place share a row. Below a
    dead step is the reason, and at the end what to type next. The time is that from when a job could start to its
    end, including the wait for a worker. At most 10,000 jobs are read, and 100 rows are printed.

    \b
    Examples:
      taskharbor flow show 01JQZ5X7T0A8
      taskharbor flow show 01JQZ5X7T0A8 --mermaid > flow.mmd

    JSON: {"id", "status", "created_at", "updated_at", "done", "total", "jobs": [as for `taskharbor list`],
    "edges": [[ID, ID]], "complete", "next"}. In an edge the second job waits for the first. complete: false if the
    flow has more jobs than are read. next: commands to type.
    """
    from taskharbor.flow.summary import mermaid as draw

    info, complete, now = call_store(target, lambda driver, now: _read_flow(driver, id, now))
    if mermaid:
        write(draw(info).rstrip())
    elif target.json:
        write_json(json_output.flow(info, complete))
    else:
        _write_tree(info, complete, now)


async def _read_flow(driver: Driver, typed: str, now: datetime) -> tuple[FlowInfo, bool, datetime]:
    return (*await read_flow(driver, await flow_id(driver, typed, now), now), now)


def _write_tree(info: FlowInfo, complete: bool, now: datetime) -> None:
    from taskharbor.cli.flow_tree import MAX_ROWS, tree_lines
    from taskharbor.flow.summary import durations_of, progress_of

    done, total = progress_of(info)
    write_facts(
        [
            ("flow", info.id),
            ("status", info.status.value),
            ("jobs", f"{done} of {total} done" if complete else f"{done} of the first {total} done"),
            ("created", with_distance(info.created_at, now)),
            ("updated", with_distance(info.updated_at, now)),
        ]
    )
    write("")
    rows = flow_view.rows_of(info)
    for line in tree_lines(rows, durations_of(info), terminal_width() if at_terminal() else None):
        write(line)
    left = sum(len(row.jobs) for row in rows[MAX_ROWS:])
    if left or not complete:
        write(f"{f'{left} more jobs' if complete else 'more jobs'}: {command('list', options=['--flow', info.id])}")
    commands = flow_view.next_commands(info)
    if commands:
        write("\n".join(["", *(f"try: {each}" for each in commands)]))


@flow.command()
@id_argument
@yes_option
@shared
def cancel(target: Target, id: str, yes: bool) -> None:
    """Cancel all jobs of a workflow that have not ended. Asks for confirmation.

    ID is the flow's id, or the id of a job in it. Running handlers are notified at the next heartbeat.

    \b
    Example:
      taskharbor flow cancel 01JQZ5X7T0A8 --yes

    JSON: {"flow", "cancelled"}. cancelled: how many jobs were.
    """
    found = call_store(target, lambda driver, now: flow_id(driver, id, now))
    confirm(f"Cancel the flow {found}?", yes)

    number = act(target, lambda operator: operator.actions.cancel_flow(found))
    nothing = f"flow {found} has no job that could be cancelled: all of them have ended"
    _write_change(target, found, "cancelled", number, nothing)


@flow.command()
@id_argument
@shared
def requeue(target: Target, id: str) -> None:
    """Requeue the dead jobs of a workflow, with all their attempts: it goes on exactly where it failed.

    ID is the flow's id, or the id of a job in it. What is done stays done.

    \b
    Example:
      taskharbor flow requeue 01JQZ5X7T0A8

    JSON: {"flow", "requeued"}. requeued: how many jobs were.
    """

    async def change(operator: Operator) -> tuple[str, int]:
        found = await flow_id(operator.driver, id, operator.now)
        return found, await operator.actions.requeue_flow(found)

    found, number = act(target, change)
    _write_change(target, found, "requeued", number, f"flow {found} has no dead job")


def _write_change(target: Target, flow: str, what: str, number: int, nothing: str) -> None:
    text = f"{plural(number, 'job')} of flow {flow} {was(number)} {what}" if number else nothing
    write_answer(target, {"flow": flow, what: number}, text)
