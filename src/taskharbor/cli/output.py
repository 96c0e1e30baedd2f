"""How an answer is written: a table for a person at a terminal, plain columns in a pipe, JSON for a script.

rich is loaded for a terminal only. In a pipe there is no colour, nothing is cut, and a row is a line. Whatever comes
from a store goes through `taskharbor.cli.text` first.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
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

NARROWEST = 6  # columns: less than that says nothing

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
    """A column of a table. `whole`: never cut, because it will be copied. `right`: numbers. `tail`: where it is cut,
    its end says more than its beginning."""

    title: str
    whole: bool = False
    right: bool = False
    tail: bool = False


def at_terminal() -> bool:
    """Whether a person looks at stdout."""
    return sys.stdout.isatty()


def write_json(value: Any, *, one: bool = False) -> None:
    """A JSON document; `one`: in one line, for streams of them."""
    data = msgspec.json.encode(value)
    text = (data if one else msgspec.json.format(data, indent=2)).decode()
    click.echo(_RISKY.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], below: Sequence[str] = ()) -> None:
    """A table, or plain columns. `below`: what a terminal shows in a line of its own under each row."""
    cleaned = [[one_line(cell) for cell in row] for row in rows]
    if at_terminal():
        out = console()
        out.print(rich_table(columns, cleaned, out.width, [one_line(text) for text in below]))
    else:
        click.echo("\n".join(plain_table(columns, cleaned)))


def write_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, one below the other; a value of several lines is indented below its name."""
    cleaned = [(name, clean(value).rstrip()) for name, value in facts]
    width = max((len(name) for name, _ in cleaned), default=0)
    for name, value in cleaned:
        label = click.style(name, dim=True)
        if "\n" in value:
            click.echo(label)
            click.echo("\n".join(f"    {line}".rstrip() for line in value.splitlines()))
            continue
        if name in ("state", "status"):
            value = click.style(value, fg=colour(value))
        click.echo(f"{label}{' ' * (width - len(name))}  {value}" if value else label)


def write(text: str) -> None:
    """A line for a person. Stored text in it was cleaned by whoever put it there."""
    click.echo(text)


def write_hanging(mark: str, text: str) -> None:
    """A mark and a text beside it; on a terminal broken between words, its further lines below its first."""
    width = shutil.get_terminal_size().columns if at_terminal() else 0
    indent = " " * _width(click.unstyle(mark))
    if len(indent) + _width(text) <= width or not width:
        click.echo(mark + text)
        return
    lines = textwrap.wrap(text, max(width - len(indent), 20), break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join([mark + lines[0], *(indent + line for line in lines[1:])]))


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


def rich_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, below: Sequence[str] = ()
) -> RenderableType:
    """The same for a terminal: fits its width, cuts what need not be whole."""
    from rich.console import Group
    from rich.text import Text

    titles = [column.title for column in columns]
    widths = fit(columns, [max(map(_width, cells)) for cells in zip(titles, *rows, strict=True)], width)
    lines = []
    for number, row in enumerate((titles, *rows)):
        line = Text(no_wrap=True, overflow="fold")
        for column, room, cell in zip(columns, widths, row, strict=True):
            if column.tail and _width(cell) > room:
                cell = _end(cell, room)
            text = Text(cell, style="bold" if not number else STYLES.get(cell, ""))
            text.truncate(room, overflow="ellipsis")
            gap = " " * (room - text.cell_len)
            line.append_text(Text(gap).append_text(text) if column.right else text.append(gap))
            line.append("  ")
        line.rstrip()
        lines.append(line)
        if number and below:
            note = Text(f"  {below[number - 1]}", style="dim", no_wrap=True)
            note.truncate(width, overflow="ellipsis")
            lines.append(note)
    return Group(*lines)


def fit(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """The widths of the columns, cut until they fit: the widest first, none that must be whole.

    >>> fit([Column("id", whole=True), Column("type"), Column("queue")], [26, 40, 9], 60)
    [26, 21, 9]
    """
    fitted = list(widths)
    flexible = [index for index, column in enumerate(columns) if not column.whole and not column.right]
    over = sum(fitted) + 2 * (len(fitted) - 1) - room
    while over > 0 and flexible:
        widest = max(flexible, key=lambda index: fitted[index])
        if fitted[widest] <= NARROWEST:
            break
        fitted[widest] -= 1
        over -= 1
    return fitted


def console() -> Console:
    """rich's console on stdout, which writes text as it is: a job's name is no markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def colour(word: str) -> str | None:
    """The colour of a state, as click names it."""
    style = STYLES.get(word.partition(" ")[0])
    return None if style in (None, "dim") else style


def _end(text: str, room: int) -> str:
    """The end of a text that does not fit.

    >>> _end("shop.tasks.send_receipt", 14)
    '….send_receipt'
    """
    while text and _width(text) >= room:
        text = text[1:]
    return f"…{text}"


def _width(text: str) -> int:
    """How many columns a terminal gives to a text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
