"""Reading the documents: their python blocks, what these print, and their links.

The convention, which docs/README.md tells readers too:

- every ```python block runs, in the order of its page, all blocks of a page in one module;
- `<!-- not run: reason -->` right before a block leaves it out, and says why;
- `<!-- prints -->` and a ```text block right after one: that is exactly what it prints;
- `<!-- file: NAME -->` right before a block: it is that file, `<!-- appended to: NAME -->`: its last lines;
- on a page that has such files, every ```sh block is typed in their folder, in order, and must end well;
- `<!-- a terminal of its own -->` right before one: it runs until the end of the page, and is ended by Ctrl-C.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(r"^( *)(```+|~~~+)([^\n`]*)$")
_NOT_RUN = re.compile(r"<!-- not run: (.*?) -->")
_PRINTS = "<!-- prints -->"
_FILE = re.compile(r"<!-- (file|appended to): (\S+) -->")
_TERMINAL = "<!-- a terminal of its own -->"
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$")
_PATH = re.compile(
    r"`((?:src|docs|tests|examples|bench)/[\w./-]*|[A-Z_]+\.md|Makefile|pyproject\.toml|constraints\.txt)`"
)


class Block(NamedTuple):
    """A fenced block: its language, its text, the line it begins at (from 1) and the comment right before it."""

    language: str
    text: str
    line: int
    comment: str


class Example(NamedTuple):
    """A python block that runs. `prints` is what it must print; None: anything."""

    page: Path
    text: str
    line: int
    prints: str | None


class Step(NamedTuple):
    """What a reader does on the way through a page: writes a file, or types commands (`beside`: in a terminal more)."""

    text: str
    line: int
    file: str = ""
    append: bool = False
    beside: bool = False


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """All fenced blocks, in order. A fence that is never closed is a mistake."""
    found: list[Block] = []
    lines = text.splitlines()
    last_words, at = "", 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            last_words = lines[at].strip() or last_words
            at += 1
            continue
        indent, mark, language = fence[1], fence[2], fence[3].strip()
        end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == mark), None)
        if end is None:
            raise ValueError(f"line {at + 1}: a fence that is never closed")
        body = "\n".join(line.removeprefix(indent) for line in lines[at + 1 : end])
        found.append(Block(language, body + "\n", at + 1, last_words))
        last_words, at = "", end + 1
    return found


def examples(page: Path) -> list[Example]:
    """The python blocks of a page that run."""
    everything = blocks(page.read_text(encoding="utf-8"))
    found = []
    for block, following in zip_longest(everything, everything[1:]):
        if block.language != "python" or _NOT_RUN.fullmatch(block.comment) or _FILE.fullmatch(block.comment):
            continue
        shown = following is not None and following.language == "text" and following.comment == _PRINTS
        found.append(Example(page, block.text, block.line, following.text if shown and following else None))
    return found


def steps(page: Path) -> list[Step]:
    """The files that a page writes and the commands that it types, in order; nothing for a page without files."""
    found = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if (file := _FILE.fullmatch(block.comment)) is not None:
            found.append(Step(block.text, block.line, file=file[2], append=file[1] != "file"))
        elif block.language == "sh" and not _NOT_RUN.fullmatch(block.comment):
            found.append(Step(block.text, block.line, beside=block.comment == _TERMINAL))
    return found if any(step.file for step in found) else []


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside of fenced blocks."""
    inside = ""
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is not None and not inside:
            inside = fence[2]
        elif inside:
            inside = "" if line.strip() == inside else inside
        else:
            yield number, line


def links(text: str) -> list[tuple[int, str]]:
    """The targets of all links, with their lines."""
    return [(number, target) for number, line in prose(text) for target in _LINK.findall(line)]


def paths(text: str) -> list[tuple[int, str]]:
    """The files and folders of this repository that the prose names in backquotes, with their lines."""
    return [(number, path) for number, line in prose(text) for path in _PATH.findall(line)]


def anchors(text: str) -> set[str]:
    """The fragments that headings answer to, as GitHub makes them."""
    found: set[str] = set()
    for _, line in prose(text):
        if heading := _HEADING.match(line):
            plain = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading[1]).lower()).replace(" ", "-")
            number = sum(1 for other in found if other == plain or re.fullmatch(re.escape(plain) + r"-\d+", other))
            found.add(f"{plain}-{number}" if number else plain)
    return found
