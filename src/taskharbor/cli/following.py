"""Following a bulk operation: this process carries it out, beside whatever workers do of it, and shows how far it is.

Ctrl-C leaves the operation, it does not stop it: workers go on, and the commands that stop or resume it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from taskharbor.cli.acting import Operator, act
from taskharbor.cli.errors import EXIT_INTERRUPTED, EXIT_REFUSED
from taskharbor.cli.output import terminal_width, write, write_hanging, write_json
from taskharbor.cli.table import cut
from taskharbor.cli.target import Target
from taskharbor.cli.text import one_line
from taskharbor.model.errors import DriverError

if TYPE_CHECKING:
    from taskharbor.client.operation import Operation, OperationProgress
    from taskharbor.ops.operations import OperationRow

LINE_EVERY_S = 10.0  # in a log, where lines stay
PAST = {"requeue": "requeued", "cancel": "cancelled", "delete": "deleted"}


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


def progress_words(progress: OperationProgress) -> str:
    """What an operation does at this moment."""
    if progress.phase == "choose":
        return "finding the jobs that the limit allows"
    if progress.phase == "canary":
        return "choosing the jobs to try first"
    if progress.phase == "await":
        return f"waiting for the {progress.done:,} jobs that are tried first to end"
    if progress.phase == "count":
        return f"counting: {progress.total or 0:,} so far"
    total = "" if progress.total is None else f" of {max(progress.total, progress.done):,}"
    return f"{progress.done:,}{total} done{_skipped(progress)}"


def _skipped(progress: OperationProgress) -> str:
    return f", {progress.skipped:,} skipped" if progress.skipped else ""


def follow(target: Target, begin: Callable[[Operator], Awaitable[Operation]], *, detach: bool = False) -> None:
    """Begin an operation, or find one, and carry it out. `detach`: leave it to workers."""
    began: list[str] = []
    line = ProgressLine(quiet=target.json)

    async def run(operator: Operator) -> tuple[OperationRow, bool]:
        from taskharbor.ops.operations import read_operation

        operation = await begin(operator)
        began.append(operation.id)
        if not detach:
            await operation.arun(on_progress=line)
        served = bool(await operator.driver.workers(operator.now)) if detach else True
        return await read_operation(operator.client, operation.id), served

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
    click.echo(f"to go on here: taskharbor dlq operations resume {id}", err=True)
    click.echo(f"to stop it: taskharbor dlq operations stop {id}", err=True)


def _report(target: Target, found: OperationRow, served: bool) -> None:
    """Print how an operation stands; exit with code 1 unless it is done or goes on."""
    if target.json:
        write_json({"operation": operation_json(found)})
    else:
        write_hanging("", outcome_words(found))
        if found.status != "done":
            write(f"try: taskharbor dlq operations show {found.id}")
    if not served:
        click.echo(
            "note: no worker sent a heartbeat in the last minute; "
            f"`taskharbor dlq operations resume {found.id}` carries it out here",
            err=True,
        )
    if found.status.ended and found.status != "done":
        sys.exit(EXIT_REFUSED)


def outcome_words(found: OperationRow) -> str:
    """One line: what an operation did."""
    past = PAST.get(found.entry.action, found.entry.action)
    progress = found.progress
    done, skipped = found.done or 0, found.skipped or 0
    changed = f"{done:,} job{'' if done == 1 else 's'} {'was' if done == 1 else 'were'} {past}"
    if skipped:
        why = "changed meanwhile, or needed by an unfinished job" if past == "deleted" else "changed meanwhile"
        changed += f"; {skipped:,} {'was' if skipped == 1 else 'were'} skipped ({why})"
    if found.status == "done":
        return changed
    if found.status == "running":
        return f"operation {found.id} has begun: workers carry it out"
    if found.status == "held":
        tried, allowed = found.entry.options.get("canary", "?"), found.entry.options.get("max_failures", "0")
        failed = "too many" if progress is None else f"{progress.failures}"
        tally = f"{failed} of the {tried} jobs that were tried first died again (allowed: {allowed})"
        return f"held: {tally}; the others stay as they are"
    if found.status == "stopped":
        return f"stopped: {changed}; the others stay as they are"
    why = f": {one_line(progress.reason)}" if progress is not None and progress.reason else ""
    return f"failed{why}; {changed}"


def operation_json(found: OperationRow) -> dict[str, Any]:
    """An operation as JSON: always the same keys."""
    entry, progress = found.entry, found.progress
    return {
        "id": found.id,
        "at": entry.at,
        "by": entry.by,
        "action": entry.action,
        "filter": entry.filter,
        "options": entry.options,
        "status": found.status.value,
        "done": found.done,
        "skipped": found.skipped,
        "phase": None if progress is None else progress.phase,
        "total": None if progress is None else progress.total,
        "failures": None if progress is None else progress.failures,
        "reason": (progress.reason or None) if progress is not None else None,
    }
