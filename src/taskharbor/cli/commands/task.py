"""`taskharbor task`: the tasks of an application."""

from __future__ import annotations

from typing import Any

import click

from taskharbor.cli.errors import usage_error
from taskharbor.cli.output import Column, write_json, write_table
from taskharbor.cli.target import Target, importing, shared
from taskharbor.store.text import format_duration

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
    default = target.harbor._store.default_queue
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "queue": task.queue or default,
            "max_attempts": task._options.max_attempts,
            "timeout": task._options.timeout,
            "priority": task._options.priority,
            "process": task.handler.process,
        }
        for name, task in sorted(target.harbor.tasks.items())
    ]
    if target.json:
        write_json({"tasks": [{**row, "timeout": row["timeout"] and row["timeout"].total_seconds()} for row in found]})
    elif found:
        write_table(COLUMNS, [[_cell(name, value) for name, value in row.items()] for row in found])
    else:
        click.echo(
            f"{target.app} declares no tasks: is the module that declares them imported? --import MODULE imports it",
            err=True,
        )


def _cell(name: str, value: Any) -> str:
    if name == "timeout":
        return "none" if value is None else format_duration(value)
    if name == "process":
        return "a child process" if value else "the worker"
    return str(value)
