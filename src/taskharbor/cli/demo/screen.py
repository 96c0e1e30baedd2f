"""The output of the demo: progress bars on a terminal, a line for each step in a pipe."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from taskharbor.cli.output import at_terminal, console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Screen:
    """Progress bars by name. `quiet`: print nothing, for a script that wants only the JSON result."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._printed: dict[str, set[str]] = {}

    def __enter__(self) -> Self:
        if at_terminal() and not self._quiet:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("  {task.description:<16}", markup=False),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False, style="dim"),
                console=console(),
                refresh_per_second=10,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str = "") -> None:
        """Print a line, above the bars if there are any."""
        if self._quiet:
            return
        if self._progress is not None:
            self._progress.console.print(text)
        else:
            click.echo(text)

    def bar(self, name: str, done: int, total: int, note: str = "") -> None:
        """Update a bar. In a pipe, print a line when there is first a note, and when it is complete."""
        if self._quiet:
            return
        if self._progress is not None:
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=total, note=note)
            changes: dict[str, Any] = {"completed": done, "total": total, "note": note}
            self._progress.update(self._bars[name], **changes)
            return
        printed = self._printed.setdefault(name, set())
        step = "complete" if done == total else "noted" if note else ""
        if step and step not in printed and "complete" not in printed:
            printed.add(step)
            click.echo(f"  {name:<16} {done} of {total}{f'  {note}' if note else ''}")
