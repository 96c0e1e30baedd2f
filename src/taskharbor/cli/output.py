"""How output is written: a table on a terminal, plain columns in a pipe, JSON for a script.

In a pipe there are no colours, no cell is truncated, and a row is one line. Where a terminal is too narrow for a table,
durations are shortened first, then ids to prefixes that commands accept, and only then are other cells truncated.
Text from a store passes through `taskharbor.store.text` first. Only `stats --watch` and the progress bars of `demo`
import rich: a command that prints a table does not pay for it.
"""

from __future__ import annotations

import os
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

from taskharbor.store.ids import short_ids
from taskharbor.store.text import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from taskharbor.cli.target import Target

# Control characters that JSON does not escape but a terminal may interpret, and marks that change the direction.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MIN_COLUMN_WIDTH = 6
ID_WIDTH = 26  # of a ULID
GAP = "  "
_DISPENSABLE = re.compile(r"^(?:added|due|began) |(?<=\d[dhm]) \d+[hms]\b|(?<=\d)\.\d(?=s)")

COLOURS = {
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


def at_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def terminal_width() -> int:
    """The width of the terminal in columns."""
    return shutil.get_terminal_size().columns


def write_json(value: Any, *, one: bool = False) -> None:
    """Print a JSON document. `one`: on one line, for a stream of documents."""
    data = msgspec.json.encode(value)
    text = (data if one else msgspec.json.format(data, indent=2)).decode()
    click.echo(_UNSAFE.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def write_answer(target: Target, facts: Any, text: str) -> None:
    """Print what a command did: the facts for a script, or a line for a person."""
    if target.json:
        write_json(facts)
    else:
        write(clean(text))


def write_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], below: Sequence[str] = (), title: str = ""
) -> None:
    """Print a table. `below`: a line under each row on a terminal; in a pipe a last column with this `title`."""
    cleaned = [[one_line(cell) for cell in row] for row in rows]
    if at_terminal():
        lines = fitted_lines(columns, cleaned, terminal_width(), [one_line(text) for text in below])
    elif title:
        more = [[*row, one_line(text)] for row, text in zip(cleaned, below, strict=True)]
        lines = plain_lines((*columns, Column(title)), more)
    else:
        lines = plain_lines(columns, cleaned)
    click.echo("\n".join(lines))


def write_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; a value of several lines is indented below its name."""
    cleaned = [(name, clean(value).rstrip()) for name, value in facts]
    width = max((len(name) for name, _ in cleaned), default=0)
    for name, value in cleaned:
        label = style(name, dim=True)
        if "\n" in value:
            click.echo(label)
            click.echo("\n".join(f"    {line}".rstrip() for line in value.splitlines()))
            continue
        if name in ("state", "status"):
            value = in_colour(value)
        click.echo(f"{label}{' ' * (width - len(name))}  {value}" if value else label)


def write(text: str) -> None:
    """Print a line. The caller has cleaned any stored text in it."""
    click.echo(text)


def write_hanging(mark: str, text: str) -> None:
    """Print a mark and a text beside it; on a terminal the text wraps and stays indented."""
    indent = " " * display_width(click.unstyle(mark))
    width = terminal_width()
    if not at_terminal() or len(indent) + display_width(text) <= width:
        click.echo(mark + text)
        return
    lines = textwrap.wrap(text, max(width - len(indent), 20), break_long_words=False, break_on_hyphens=False)
    click.echo("\n".join([mark + lines[0], *(indent + line for line in lines[1:])]))


def console() -> Console:
    """rich's console on stdout, which prints text as it is: a job's name is not markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


# Tables as lines of text


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `whole`: never truncated, because people copy it. `right`: numbers. `tail`: truncated at the beginning, because the
    end says more. `ids`, `times`: ids of jobs, and durations, which can be shortened without losing their meaning.
    """

    title: str
    whole: bool = False
    right: bool = False
    tail: bool = False
    ids: bool = False
    times: bool = False


def plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table for a pipe: as wide as necessary, without colours."""
    titles = [column.title.upper() for column in columns]
    widths = _widths(titles, rows)
    return [_line(columns, widths, row) for row in (titles, *rows)]


def fitted_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, below: Sequence[str] = ()
) -> list[str]:
    """The table for a terminal: fitted to its width, with colours. `below`: a further line under each row."""
    titles = [column.title for column in columns]
    widest = max(width // 3, ID_WIDTH)  # one endless id must not widen every row
    for which, shorten in (("times", brief_times), ("ids", short_ids)):
        needed = [min(each, widest) for each in _widths(titles, rows)]
        if rows and sum(needed) + len(GAP) * (len(needed) - 1) > width:
            turned = [list(cells) for cells in zip(*rows, strict=True)]
            pairs = zip(columns, turned, strict=True)
            turned = [shorten(cells) if getattr(column, which) else cells for column, cells in pairs]
            rows = [list(row) for row in zip(*turned, strict=True)]
    needed = [min(each, widest) for each in _widths(titles, rows)]
    widths = fit(columns, needed, width)
    lines = [style(cut(_line(columns, widths, titles), width), bold=True)]
    for number, row in enumerate(rows):
        lines.append(_line(columns, widths, row, coloured=True))
        if below and below[number]:
            lines.append(style(GAP + cut(below[number], width - len(GAP)), dim=True))
    return lines


def brief_times(cells: Sequence[str]) -> list[str]:
    """Durations in one unit, and without the word before them that the state of the job repeats.

    >>> brief_times(["due in 59m 45s", "added 2.1s ago"])
    ['in 59m', '2s ago']
    """
    return [_DISPENSABLE.sub("", cell) for cell in cells]


def fit(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Shrink the widest columns until the table fits, but none that must stay whole.

    >>> fit([Column("id", whole=True), Column("type"), Column("queue")], [26, 40, 9], 60)
    [26, 21, 9]
    """
    fitted = list(widths)
    flexible = [index for index, column in enumerate(columns) if not column.whole and not column.right]
    over = sum(fitted) + len(GAP) * (len(fitted) - 1) - room
    while over > 0 and flexible:
        widest = max(flexible, key=lambda index: fitted[index])
        if fitted[widest] <= MIN_COLUMN_WIDTH:
            break
        fitted[widest] -= 1
        over -= 1
    return fitted


def style(text: str, **styles: Any) -> str:
    """Styled text for a terminal; plain if $NO_COLOR is set or the terminal is dumb. click removes it in a pipe."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **styles)


def in_colour(word: str, state: str = "") -> str:
    """A word in the colour of the state that it, or `state`, names."""
    colour = COLOURS.get(state or word)
    if colour is None:
        return word
    return style(word, dim=True) if colour == "dim" else style(word, fg=colour)


def display_width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(display_width, cells)) for cells in zip(titles, *rows, strict=True)]


def _line(columns: Sequence[Column], widths: Sequence[int], row: Sequence[str], *, coloured: bool = False) -> str:
    cells = []
    for column, width, cell in zip(columns, widths, row, strict=True):
        text = cell if column.whole else cut_front(cell, width) if column.tail else cut(cell, width)
        gap = " " * (width - display_width(text))
        if coloured:
            text = in_colour(text, cell)
        cells.append(gap + text if column.right else text + gap)
    return GAP.join(cells).rstrip()


def cut(text: str, room: int) -> str:
    """The beginning of a text that does not fit.

    >>> cut("the mail server is away", 10)
    'the mail …'
    """
    if display_width(text) <= room:
        return text
    while text and display_width(text) >= room:
        text = text[:-1]
    return f"{text}…"


def cut_front(text: str, room: int) -> str:
    """The end of a text that does not fit.

    >>> cut_front("shop.tasks.send_receipt", 14)
    '….send_receipt'
    """
    if display_width(text) <= room:
        return text
    while text and display_width(text) >= room:
        text = text[1:]
    return f"…{text}"
