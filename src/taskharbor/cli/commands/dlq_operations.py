"""`taskharbor dlq operations`: the requeues, cancels and deletes by filter, and how far each is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.lazy import DefaultGroup
from taskharbor.cli.many import follow
from taskharbor.cli.options import choose_time, id_argument, number, since, word
from taskharbor.cli.output import Column, write, write_answer, write_facts, write_json, write_table
from taskharbor.cli.store import Operator, act
from taskharbor.cli.target import Target, shared
from taskharbor.model.errors import JobNotFound, WrongState
from taskharbor.ops import json_output
from taskharbor.ops.operations import outcome_words, progress_words
from taskharbor.store.text import command, format_duration, format_moment, relative, with_distance

if TYPE_CHECKING:
    from taskharbor.client.operation import Operation
    from taskharbor.ops.operations import OperationRow

COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("began", whole=True, times=True),
    Column("by"),
    Column("action", whole=True),
    Column("status", whole=True),
    Column("done", right=True),
    Column("skipped", right=True),
    Column("jobs"),
)


@click.group(cls=DefaultGroup, default="list")
def operations() -> None:
    """List, show, stop and resume operations. Without a command: list."""


@operations.command("list")
@since("Only those that began at this time or later")
@word("--by", "NAME", "Only those of this person.")
@number("--limit", "At most N operations.", high=1000, default=20)
@shared
def list_(target: Target, **query: Any) -> None:
    """List operations, the newest first: what they do, and how far they are.

    \b
    Examples:
      taskharbor dlq operations
      taskharbor dlq operations list --since 1d

    JSON: {"operations": [as for `taskharbor dlq operations show`]}
    """

    async def read(operator: Operator) -> tuple[list[OperationRow], datetime]:
        from taskharbor.ops.operations import read_operations

        return await read_operations(operator.store, **choose_time(query, operator.now)), operator.now

    found, now = act(target, read)
    if target.json:
        write_json({"operations": [json_output.operation(row) for row in found]})
        return
    if not found:
        click.echo("no operations", err=True)
        return
    rows = [
        [
            row.id,
            relative(row.entry.at, now),
            row.entry.by,
            row.entry.action,
            row.status.value,
            "" if row.done is None else f"{row.done:,}",
            "" if row.skipped is None else f"{row.skipped:,}",
            _filter(row),
        ]
        for row in found
    ]
    write_table(COLUMNS, rows)


def _filter(row: OperationRow) -> str:
    """The filter, without what all of them have: the cut, and for most that the jobs are dead."""
    given = {name: value for name, value in row.entry.filter.items() if name != "until" and value != "dlq"}
    return " ".join(f"{name}={value}" for name, value in given.items())


@operations.command()
@id_argument
@shared
def show(target: Target, id: str) -> None:
    """Show an operation: who began it, on which jobs, and how far it is.

    \b
    Example:
      taskharbor dlq operations show 01JQZ5X7T0A8

    JSON: {"id", "at", "by", "action", "filter", "options", "status", "done", "skipped", "phase", "total", "failures",
    "reason"}. status: one of running, done, held, stopped, failed. The last four are null a week after its end.
    """

    async def read(operator: Operator) -> tuple[OperationRow, datetime]:
        return await _find(operator, id), operator.now

    found, now = act(target, read)
    if target.json:
        write_json(json_output.operation(found))
        return
    entry = found.entry
    running = found.progress is not None and not found.status.ended
    write_facts(
        [
            ("id", found.id),
            ("status", found.status.value),
            ("began", with_distance(entry.at, now)),
            ("by", entry.by),
            ("action", entry.action),
            ("jobs", ", ".join(f"{name} {value}" for name, value in entry.filter.items() if name != "until")),
            ("as of", _moment(entry.filter.get("until"))),
            *((name.replace("_", " "), _option(name, value)) for name, value in entry.options.items()),
            ("so far" if running else "outcome", _standing(found)),
        ]
    )
    commands = ["stop", "resume"] if running else ["resume"] if found.status == "failed" else []
    if commands:
        write("\n".join(["", *(f"try: {command(f'dlq operations {each}', found.id)}" for each in commands)]))


def _moment(text: str | None) -> str:
    return "" if text is None else f"{format_moment(datetime.fromisoformat(text))}; what came later is not touched"


def _option(name: str, value: str) -> str:
    return format_duration(timedelta(seconds=float(value))) if name == "spread" else value


def _standing(found: OperationRow) -> str:
    if found.progress is not None and not found.status.ended:
        return progress_words(found.progress)
    return outcome_words(found)


@operations.command()
@id_argument
@shared
def stop(target: Target, id: str) -> None:
    """Stop an operation. What it has not changed yet stays as it is; what it has changed stays so, too.

    \b
    Example:
      taskharbor dlq operations stop 01JQZ5X7T0A8

    JSON: as for `taskharbor dlq operations show`. Exit 1 if it had ended already.
    """

    async def change(operator: Operator) -> OperationRow:
        found = await _find(operator, id)
        if found.status.ended:
            raise WrongState(f"operation {found.id} is {found.status} already; there is nothing to stop")
        await operator.actions.stop(found.id)
        return await _find(operator, found.id)

    found = act(target, change)
    stops = f"operation {found.id} stops after the slice under way"
    write_answer(target, json_output.operation(found), outcome_words(found) if found.status.ended else stops)


@operations.command()
@id_argument
@shared
def resume(target: Target, id: str) -> None:
    """Carry out an operation here that runs or failed: after Ctrl-C, or if no worker does it.

    One that is done, held or stopped does not go on. Begin a new one with the same filter: what the old one changed no
    longer fits.

    \b
    Example:
      taskharbor dlq operations resume 01JQZ5X7T0A8

    JSON: {"operation": as for `taskharbor dlq operations show`}. Exit 1 if it is held, stopped or fails.
    """

    async def find(operator: Operator) -> Operation:
        found = await _find(operator, id)
        if found.progress is None:
            raise JobNotFound(f"operation {found.id} ended more than a week ago; begin a new one with the same filter")
        return await operator.actions.go_on(found.id)

    follow(target, find)


async def _find(operator: Operator, typed: str) -> OperationRow:
    from taskharbor.ops.operations import read_operation

    return await read_operation(operator.store, typed)
