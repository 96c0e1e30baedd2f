"""How figures are laid out: tables for a terminal and in Markdown, and the place of each store in a document."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure

LATENCY_HEAD = ("", "p50", "lowest – highest", "p99", "lowest – highest")

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Section, head, rows."""


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"{os.cpu_count()} cores, {platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    )


def as_text(facts: str, tables: Sequence[Table], aims: Sequence[str]) -> str:
    """For a terminal."""
    parts = [facts]
    for section, head, rows in tables:
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        lines = [section]
        for row in (head, *rows):
            cells = [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        parts.append("\n".join(lines))
    parts.append("Aims\n" + "\n".join(f"  {line}" for line in aims))
    return "\n\n".join(parts)


def as_markdown(facts: str, tables: Sequence[Table], aims: Sequence[str]) -> str:
    """For a document, below a heading of the second level."""
    parts = [facts]
    for section, head, rows in tables:
        lines = [f"### {section}", "", _row(head), _row(("---", *["---:"] * (len(head) - 1)))]
        parts.append("\n".join([*lines, *map(_row, rows)]))
    parts.append("### Aims\n\n" + "\n".join(f"- {line}" for line in aims))
    return "\n\n".join(parts)


def markers(store: str) -> tuple[str, str]:
    """Between what a store's figures stand in a document."""
    return f"<!-- figures of {store}: begin -->", f"<!-- figures of {store}: end -->"


def place(path: Path, store: str) -> tuple[str, str]:
    """What stands before and after a store's figures; ValueError if the document has no place for them."""
    if not path.is_file():
        raise ValueError(f"{path}: expected a document to write into, such as docs/benchmarks.md; there is none")
    first, last = markers(store)
    before, begin, rest = path.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{path}: expected the markers {first} and {last}")
    return before, after


def write(path: Path, store: str, figures: str) -> None:
    """Replace what stands between a store's markers."""
    before, after = place(path, store)
    first, last = markers(store)
    path.write_text(f"{before}{first}\n\n{figures}\n\n{last}{after}", encoding="utf-8")


def ms(seconds: float) -> str:
    """Milliseconds."""
    return f"{seconds * 1000:.2f} ms"


def span_ms(figure: Figure) -> str:
    """The lowest and the highest, in milliseconds."""
    return f"{ms(figure.least)} – {ms(figure.most)}"


def span(figure: Figure) -> str:
    """The lowest and the highest of a rate."""
    return f"{figure.least:,.0f} – {figure.most:,.0f}"


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
