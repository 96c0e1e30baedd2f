"""`taskharbor task`: the tasks of an application."""

from __future__ import annotations

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import write_json, write_table
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target, importing, shared
from taskharbor.store.timefmt import format_duration

COLUMNS = (
    Column("name", tail=True),
    Column("queue"),
    Column("attempts", right=True),
    Column("timeout", right=True),
    Column("priority", right=True),
    Column("runs in", whole=True),
)


@click.group()
def task() -> None:
    """List the tasks of an application."""


@task.command("list")
@shared
@importing
def list_(target: Target) -> None:
    """List the tasks that an application declares, with the options of their jobs. Uses no store.

    \b
    Examples:
      taskharbor task list --app tasks:harbor
      taskharbor task list --app shop.queue:harbor --import shop.jobs

    JSON: {"tasks": [{"name", "queue", "max_attempts", "timeout", "priority", "process"}]}. process: true if it runs in
    a child process.
    """
    if target.harbor is None:
        raise usage_error("task list: expected --app module:name, which names the Harbor of your application")
    from taskharbor.ops.task_rows import tasks_of

    found = tasks_of(target.harbor)
    if target.json:
        keys = ("name", "queue", "max_attempts", "timeout", "priority", "process")
        rows = [{key: getattr(row, key) for key in keys} for row in found]
        write_json({"tasks": [{**row, "timeout": row["timeout"] and row["timeout"].total_seconds()} for row in rows]})
        return
    if not found:
        click.echo(
            f"{target.app} declares no tasks: is the module that declares them imported? --import MODULE imports it",
            err=True,
        )
        return
    cells = [
        [
            row.name,
            row.queue,
            str(row.max_attempts),
            "none" if row.timeout is None else format_duration(row.timeout),
            str(row.priority),
            "a child process" if row.process else "the worker",
        ]
        for row in found
    ]
    write_table(COLUMNS, cells)
