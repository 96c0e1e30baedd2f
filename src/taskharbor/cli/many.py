"""Changing all jobs of a filter: what would be changed, the question, and the operation that does it.

What the person saw is what the operation takes: the filter is frozen at the moment of the preview (the cut), and given
to the operation as its `until`. What dies later is not touched.

This process carries the operation out, beside whatever workers do of it, and shows how far it is. Ctrl-C leaves the
operation, it does not stop it: workers go on, and the commands that stop or resume it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from taskharbor.cli.asking import confirm, expect_person
from taskharbor.cli.errors import EXIT_INTERRUPTED, EXIT_REFUSED, usage_error
from taskharbor.cli.output import (
    Column,
    cut,
    terminal_width,
    write,
    write_facts,
    write_hanging,
    write_json,
    write_table,
)
from taskharbor.cli.selection import Selection, as_options, in_words
from taskharbor.cli.store import Operator, act
from taskharbor.cli.target import Target
from taskharbor.model.errors import DriverError
from taskharbor.ops import json_output
from taskharbor.ops.operations import PAST, Preview, outcome_words, progress_words, read_preview
from taskharbor.store.redaction import HIDDEN
from taskharbor.store.text import command, format_duration, format_moment, relative

if TYPE_CHECKING:
    from taskharbor.client.operation import Operation
    from taskharbor.ops.operations import OperationRow
    from taskharbor.store.bulk.operations import OperationProgress

NO_WORKER = "no worker sent a heartbeat in the last minute"
LINE_EVERY_S = 10.0  # in a log, where lines stay
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

    follow(target, begin, detach=selection.detach, waits="canary" in options)


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
    given = {**selection.given, "error": name}
    state = ["--state", str(given["state"])] if "state" in given and not selection.command.startswith("dlq ") else []
    return command(selection.command, options=[*state, *as_options(given)])


async def _preview(operator: Operator, selection: Selection, action: str, options: dict[str, Any]) -> Preview:
    try:
        jobs = await selection.jobs(operator)
        return await read_preview(operator.driver, operator.now, operator.actions, jobs, action, **options)
    except (TypeError, ValueError) as error:
        raise wrong_options(selection, error) from error


def _counted(selection: Selection, preview: Preview) -> str:
    return in_words(selection.given, preview.found.count.n, preview.found.count.capped)


def _question(selection: Selection, action: str, preview: Preview) -> str:
    most = f", at most {selection.limit:,} of them" if selection.limit else ""
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
    write_table(COLUMNS, rows, below=[HIDDEN.why(info.job) for info in preview.sample], title="reason")
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
    instead = " in place of --until or --older-than" if "until" in selection.given else ""
    return f"; to do it with exactly these jobs: {until}{instead}"


def _facts(selection: Selection, preview: Preview, options: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("jobs", _counted(selection, preview))]
    if selection.limit:
        facts.append(("limit", f"the first {selection.limit:,} of them"))
    facts.append(("as of", f"{format_moment(preview.found.cut)}; what comes later is not touched"))
    if options.get("canary"):
        allowed = options.get("max_failures", 0)
        facts.append(("first", f"{options['canary']} of them; if more than {allowed} die again, the others stay"))
    spread = options.get("spread")
    if isinstance(spread, timedelta):
        facts.append(("over", format_duration(spread)))
    return facts


# Following an operation


class ProgressLine:
    """How far an operation is: one line that is written over on a terminal, a line now and then elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._live = sys.stderr.isatty()
        self._quiet = quiet and not self._live
        self._next = time.monotonic() + LINE_EVERY_S

    def __call__(self, progress: OperationProgress) -> None:
        """Show the progress of an operation that has not ended."""
        if progress.status.ended or self._quiet:
            return
        if self._live:
            click.echo(f"\r\x1b[K{cut(progress_words(progress), terminal_width() - 1)}", err=True, nl=False)
        elif time.monotonic() >= self._next:
            click.echo(progress_words(progress), err=True)
            self._next = time.monotonic() + LINE_EVERY_S

    def clear(self) -> None:
        """Remove the line."""
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)


def follow(
    target: Target,
    begin: Callable[[Operator], Awaitable[Operation]],
    *,
    detach: bool = False,
    waits: bool = False,
) -> None:
    """Begin an operation, or find one, and carry it out. `detach`: leave it to workers. `waits`: it needs workers."""
    began: list[str] = []
    line = ProgressLine(quiet=target.json)

    async def run(operator: Operator) -> tuple[OperationRow, bool]:
        from taskharbor.ops.operations import read_operation

        operation = await begin(operator)
        began.append(operation.id)
        if waits and not detach and not await operator.driver.workers(operator.now):
            click.echo(f"note: {NO_WORKER}, and the jobs that are tried first wait for one", err=True)
        if not detach:
            await operation.arun(on_progress=line)
        served = bool(await operator.driver.workers(operator.now)) if detach else True
        return await read_operation(operator.store, operation.id), served

    try:
        found, served = act(target, run)
    except KeyboardInterrupt:
        line.clear()
        if not began:
            raise
        _left(began[0])
        sys.exit(EXIT_INTERRUPTED)
    except DriverError:
        line.clear()
        if began:
            _left(began[0])
        raise
    line.clear()
    _report(target, found, served)


def _left(id: str) -> None:
    click.echo(f"operation {id} was left, not stopped: workers go on", err=True)
    click.echo(f"to go on here: {command('dlq operations resume', id)}", err=True)
    click.echo(f"to stop it: {command('dlq operations stop', id)}", err=True)


def _report(target: Target, found: OperationRow, served: bool) -> None:
    """Print how an operation stands; exit with code 1 unless it is done or goes on."""
    if target.json:
        write_json({"operation": json_output.operation(found)})
    else:
        write_hanging("", outcome_words(found))
        if found.status != "done":
            write(f"try: {command('dlq operations show', found.id)}")
    if not served:
        click.echo(
            f"note: {NO_WORKER}; `{command('dlq operations resume', found.id)}` carries it out here",
            err=True,
        )
    if found.status.ended and found.status != "done":
        sys.exit(EXIT_REFUSED)
