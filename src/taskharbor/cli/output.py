"""How output is written: a table on a terminal, plain columns in a pipe, JSON for a script.

In a pipe there are no colours, no cell is truncated, and a row is one line. Text from a store passes through
`taskharbor.store.text` first. Only `stats --watch` and the progress bars of `demo` import rich.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from taskharbor.cli.table import Column, display_width, fitted_lines, in_colour, plain_lines, style
from taskharbor.store.text import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console

    from taskharbor.cli.target import Target

# Control characters that JSON does not escape but a terminal may interpret, and marks that change the direction.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


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
