"""The output of the demo: progress bars on a terminal, a line for each step in a pipe."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from taskharbor.cli.output import at_terminal, console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_WIDTH = 16
LABEL_WIDTH = 15


class Screen:
    """Progress bars by name. `quiet`: print nothing, for a script that wants only the JSON result."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._printed: dict[str, set[str]] = {}

    def __enter__(self) -> Self:
        if at_terminal() and not self._quiet:
            self._progress = _bars()
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def say(self, text: str = "") -> None:
        """Print a line, above the bars if there are any."""
        if self._quiet:
            return
        if self._progress is not None:
            from rich.text import Text

            self._progress.console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            click.echo(text)

    def bar(self, name: str, done: int, total: int, note: str = "", *, bad: bool = False) -> None:
        """Update a bar; `bad`: in the colour of a failure.

        In a pipe, print a line when there is first a note, and when the bar is complete.
        """
        if self._quiet:
            return
        if self._progress is not None:
            fields: dict[str, Any] = {"note": note, "colour": "red" if bad else "green" if done == total else "cyan"}
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=total, **fields)
            self._progress.update(self._bars[name], completed=done, total=total, **fields)
            return
        printed = self._printed.setdefault(name, set())
        step = "complete" if done == total else "noted" if note else ""
        if step and step not in printed and "complete" not in printed:
            printed.add(step)
            click.echo(f"  {name:<{LABEL_WIDTH}} {done}/{total}{f'  {note}' if note else ''}")


def _bars() -> Progress:
    """Bars in the colours that their rows ask for. The note takes the rest of the line, and is cut where that ends."""
    from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress_bar import ProgressBar
    from rich.table import Column

    class Bar(ProgressColumn):
        def render(self, task: Task) -> ProgressBar:
            colour = task.fields["colour"]
            return ProgressBar(
                total=task.total,
                completed=task.completed,
                width=BAR_WIDTH,
                complete_style=colour,
                finished_style=colour,
            )

    whole, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn(f"  {{task.description:<{LABEL_WIDTH}}}", markup=False, table_column=whole),
        Bar(),
        MofNCompleteColumn(table_column=Column(no_wrap=True, justify="right")),
        TextColumn("{task.fields[note]}", markup=False, table_column=rest),
        console=console(),
        refresh_per_second=10,
    )
