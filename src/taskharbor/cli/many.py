"""Changing all jobs of a filter: what would be changed, the question, and the operation that does it.

What the person saw is what the operation takes: the filter is frozen at the moment of the preview (the cut), and given
to the operation as its `until`. What dies later is not touched.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from taskharbor.cli.acting import Operator, act
from taskharbor.cli.confirm import confirm, expect_person
from taskharbor.cli.errors import usage_error
from taskharbor.cli.following import follow
from taskharbor.cli.output import at_terminal, write, write_facts, write_json, write_table
from taskharbor.cli.selection import Selection
from taskharbor.cli.table import Column
from taskharbor.cli.target import Target
from taskharbor.ops import json_output
from taskharbor.ops.operation_words import PAST
from taskharbor.ops.preview import Preview, read_preview
from taskharbor.ops.redaction import HIDDEN
from taskharbor.ops.timefmt import format_duration, format_moment, relative

if TYPE_CHECKING:
    from taskharbor.client.operation import Operation

MAX_NAMED = 5  # commands that an error suggests
COLUMNS = (
    Column("id", whole=True, ids=True),
    Column("type", tail=True),
    Column("queue"),
    Column("state", whole=True),
    Column("when", whole=True, times=True),
)


def change_many(target: Target, selection: Selection, action: str, **options: Any) -> None:
    """Requeue, cancel or delete all jobs of a filter, and follow the operation to its end."""
    if selection.limit is not None:
        options["limit"] = selection.limit
    expect_person(selection.yes or selection.dry_run)
    cut: datetime | None = None
    if selection.dry_run or not selection.yes:
        preview = act(target, lambda operator: _preview(operator, selection, action, options))
        cut = preview.found.cut
        if selection.dry_run or not preview.found.count.n:
            _write_preview(target, selection, action, preview, options, only=True)
            return
        if not target.json:
            _write_preview(target, selection, action, preview, options)
        confirm(_question(selection, action, preview), selection.yes)

    async def begin(operator: Operator) -> Operation:
        jobs = await selection.jobs(operator)
        if cut is not None:
            jobs = msgspec.structs.replace(jobs, until=cut)
        try:
            return await operator.actions.begin(jobs, action, **options)
        except (TypeError, ValueError) as error:
            raise wrong_options(selection, error) from error

    follow(target, begin, detach=selection.detach)


def wrong_options(selection: Selection, error: Exception) -> Exception:
    """The usage error for options that make no sense together; an error of the store as it is."""
    from taskharbor.client.jobs import BareErrorName
    from taskharbor.model.errors import TaskHarborError

    if isinstance(error, TaskHarborError):
        return error
    if isinstance(error, BareErrorName):
        commands = ", or: ".join(_with_error(selection, name) for name in error.names[:MAX_NAMED])
        return usage_error(f"{selection.command}: --{error}. Type: {commands}")
    return usage_error(f"{selection.command}: {error}")


def _with_error(selection: Selection, name: str) -> str:
    """The command again, with the filter that was typed and another class."""
    from taskharbor.cli.dead_summary import options_of

    given = {**selection.given, "error": name}
    state = f"--state {given['state']} " if "state" in given and not selection.command.startswith("dlq ") else ""
    return f"taskharbor {selection.command} {state}{options_of(given)}"


async def _preview(operator: Operator, selection: Selection, action: str, options: dict[str, Any]) -> Preview:
    try:
        jobs = await selection.jobs(operator)
        return await read_preview(operator.driver, operator.now, operator.actions, jobs, action, **options)
    except (TypeError, ValueError) as error:
        raise wrong_options(selection, error) from error


def number(count: int, capped: bool = False) -> str:
    """A number of jobs for a person.

    >>> number(1240), number(10_000, True)
    ('1,240', '10,000+')
    """
    return f"{count:,}{'+' if capped else ''}"


def _counted(selection: Selection, preview: Preview) -> str:
    count = preview.found.count
    if not count.capped and count.n == 1:
        return f"1 {str(selection).replace('jobs', 'job', 1)}"
    return f"{number(count.n, count.capped)} {selection}"


def _question(selection: Selection, action: str, preview: Preview) -> str:
    most = f", at most {number(selection.limit)} of them" if selection.limit else ""
    return f"{action.capitalize()} {_counted(selection, preview)}{most}?"


def _write_preview(
    target: Target, selection: Selection, action: str, preview: Preview, options: dict[str, Any], only: bool = False
) -> None:
    found = preview.found
    if target.json:
        sample = [json_output.dead(info) for info in preview.sample]
        facts = {"action": action, "jobs": found.count.n, "capped": found.count.capped, "cut": found.cut}
        write_json({**facts, "limit": selection.limit, "sample": sample, "notes": preview.notes})
        return
    if not found.count.n:
        write(f"no {selection}: nothing would be {PAST[action]}" if selection.dry_run else f"no {selection}")
        return
    now = found.cut
    write_facts(_facts(selection, preview, options))
    write("")
    rows = [
        [i.job.id, i.job.type, i.job.queue, i.state.value, relative(i.job.finished_at or i.job.created_at, now)]
        for i in preview.sample
    ]
    reasons = [HIDDEN.why(info.job) for info in preview.sample]
    if at_terminal():
        write_table(COLUMNS, rows, below=reasons)
    else:
        write_table((*COLUMNS, Column("reason")), [[*row, why] for row, why in zip(rows, reasons, strict=True)])
    if found.count.n > len(rows):
        write("…")
    for note in preview.notes:
        click.echo(f"note: {note}", err=True)
    if only:
        write("")
        write(f"nothing was changed{_how_to_repeat(selection, found.cut)}")


def _how_to_repeat(selection: Selection, cut: datetime) -> str:
    """The option that makes the next command act on what was shown."""
    until = f"--until {cut.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"
    if isinstance(selection.given.get("until"), datetime):
        return ""
    instead = ", in place of the one before" if "until" in selection.given else ""
    return f"; to do it with exactly these jobs: {until}{instead}"


def _facts(selection: Selection, preview: Preview, options: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("jobs", _counted(selection, preview))]
    if selection.limit:
        facts.append(("limit", f"the first {number(selection.limit)} of them"))
    facts.append(("as of", f"{format_moment(preview.found.cut)}; what comes later is not touched"))
    if options.get("canary"):
        allowed = options.get("max_failures", 0)
        facts.append(("first", f"{options['canary']} of them; if more than {allowed} die again, the others stay"))
    spread = options.get("spread")
    if isinstance(spread, timedelta):
        facts.append(("over", format_duration(spread)))
    return facts
