"""How an answer is written: a table for a person at a terminal, plain columns in a pipe, JSON for a script.

rich is loaded for a terminal only. In a pipe there is no colour, nothing is cut, and a row is a line. Whatever comes
from a store goes through `taskharbor.cli.text` first.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import msgspec

from taskharbor.cli.text import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# What a terminal might obey even inside JSON text: the controls that JSON lets stand, and marks of direction.
_RISKY = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

STYLES = {
    "ready": "cyan",
    "scheduled": "blue",
    "blocked": "magenta",
    "inflight": "yellow",
    "running": "yellow",
    "done": "green",
    "succeeded": "green",
    "ok": "green",
    "dlq": "red",
    "failed": "red",
    "problem": "red",
    "cancelled": "dim",
    "paused": "yellow",
    "warning": "yellow",
}


@dataclass(frozen=True)
class Column:
    """A column of a table. `whole`: never cut, because it will be copied. `right`: numbers."""

    title: str
    whole: bool = False
    right: bool = False


def at_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()


def write_json(value: Any, *, one: bool = False) -> None:
    """A JSON document; `one`: in one line, for streams of them."""
    data = msgspec.json.encode(value)
    text = (data if one else msgspec.json.format(data, indent=2)).decode()
    click.echo(_RISKY.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """A table, or plain columns."""
    cleaned = [[one_line(cell) for cell in row] for row in rows]
    if at_terminal():
        console().print(rich_table(columns, cleaned))
    else:
        click.echo("\n".join(plain_table(columns, cleaned)))


def write_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one below the other; a value of several lines is indented below its name."""
    cleaned = [(name, clean(value).rstrip()) for name, value in facts]
    width = max((len(name) for name, _ in cleaned), default=0)
    for name, value in cleaned:
        lines = value.splitlines() or [""]
        label = click.style(f"{name:<{width}}", dim=True)
        first = value if len(lines) == 1 else ""
        if name in ("state", "status"):
            first = click.style(first, fg=_colour(first))
        click.echo(f"{label}  {first}".rstrip())
        if len(lines) > 1:
            click.echo("\n".join(f"    {line}" for line in lines))


def write(text: str) -> None:
    """A line for a person. Stored text in it was cleaned by whoever put it there."""
    click.echo(text)


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table as a pipe gets it: as wide as it has to be, spaces between the columns."""
    titles = [column.title.upper() for column in columns]
    widths = [max(map(_width, cells)) for cells in zip(titles, *rows, strict=True)]
    lines = []
    for row in (titles, *rows):
        cells = []
        for column, width, cell in zip(columns, widths, row, strict=True):
            gap = " " * (width - _width(cell))
            cells.append(gap + cell if column.right else cell + gap)
        lines.append("  ".join(cells).rstrip())
    return lines


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> RenderableType:
    """The same for a terminal: fits its width, cuts what need not be whole."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        longest = max((_width(row[index]) for row in rows), default=0)
        table.add_column(
            column.title,
            no_wrap=True,
            overflow="fold" if column.whole else "ellipsis",
            justify="right" if column.right else "left",
            min_width=min(longest, 40) if column.whole else None,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return table


def console() -> Console:
    """rich's console on stdout, which writes text as it is: a job's name is no markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def _colour(word: str) -> str | None:
    style = STYLES.get(word.partition(" ")[0])
    return None if style in (None, "dim") else style


def _width(text: str) -> int:
    """How many columns a terminal gives to a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
