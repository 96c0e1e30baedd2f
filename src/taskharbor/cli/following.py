"""Following a bulk operation: this process carries it out, beside whatever workers do of it, and shows how far it is.

Ctrl-C leaves the operation, it does not stop it: workers go on, and the commands that stop or resume it are printed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from taskharbor.cli.acting import Operator, act
from taskharbor.cli.errors import EXIT_INTERRUPTED, EXIT_REFUSED
from taskharbor.cli.output import terminal_width, write, write_hanging, write_json
from taskharbor.cli.table import cut
from taskharbor.cli.target import Target
from taskharbor.model.errors import DriverError
from taskharbor.ops import json_output
from taskharbor.ops.operation_words import outcome_words, progress_words

if TYPE_CHECKING:
    from taskharbor.client.operation import Operation, OperationProgress
    from taskharbor.ops.operations import OperationRow

LINE_EVERY_S = 10.0  # in a log, where lines stay


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
        write_json({"operation": json_output.operation(found)})
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
