"""The report: places in a program, the code there, what to write instead, and what to know; and how it is printed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any, Literal, get_args

import click
import msgspec

from taskharbor.cli.output import write_hanging, write_json
from taskharbor.cli.table import style
from taskharbor.model.safe_repr import shows
from taskharbor.ops.text import one_line

Level = Literal["same", "differs", "missing"]
"""same: write it and it behaves alike. differs: it works in another way. missing: there is no counterpart."""
Kind = Literal["task", "schedule", "call", "setting", "other"]

_MARKS: dict[Level, tuple[str, dict[str, Any]]] = {
    "same": ("note", {"dim": True}),
    "differs": ("differs", {"fg": "yellow"}),
    "missing": ("missing", {"fg": "red"}),
}
_WIDTH = 9  # of a mark and its gap
_COUNTED: tuple[Kind, ...] = ("task", "schedule", "call", "setting")


@shows("level")
class Advice(msgspec.Struct, frozen=True):
    """A sentence about a place."""

    level: Level
    text: str


class Remarks(list[Advice]):
    """What there is to say about a place, in its order."""

    def same(self, text: str) -> None:
        self.append(Advice("same", text))

    def differs(self, text: str) -> None:
        self.append(Advice("differs", text))

    def missing(self, text: str) -> None:
        self.append(Advice("missing", text))


@shows("kind", "line")  # what stands in a program is not for logs
class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a program. `line` 0: somewhere in the file, or in no file at all (`file` is then empty)."""

    kind: Kind
    subject: str
    file: str = ""
    line: int = 0
    theirs: str = ""
    ours: str = ""
    advice: tuple[Advice, ...] = ()

    @property
    def level(self) -> Level:
        """The worst of what there is to say."""
        levels = {each.level for each in self.advice}
        return "missing" if "missing" in levels else "differs" if "differs" in levels else "same"


@shows()
class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A word of another library: what to write for it, and what to know. `{}` stands for the value that it has."""

    ours: str = ""
    same: str = ""
    differs: str = ""
    missing: str = ""

    def advice(self, value: str = "") -> list[Advice]:
        return [
            Advice(level, getattr(self, level).replace("{}", value))
            for level in get_args(Level)
            if getattr(self, level)
        ]


@cache
def words(library: str) -> dict[str, dict[str, Word]]:
    """The tables of a library's words, by what each word is."""
    text = (files("taskharbor.cli.moving") / f"{library}.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, dict[str, Word]])


def write_report(program: str, findings: Iterable[Finding], output: str) -> None:
    """Print the findings in the order of files and lines; `json` for scripts, else for people."""
    here = os.path.join(os.getcwd(), "")
    moved = [
        msgspec.structs.replace(each, file=os.path.relpath(each.file, here)) if each.file.startswith(here) else each
        for each in findings
    ]
    ordered = sorted(moved, key=lambda finding: (not finding.file, finding.file, finding.line))
    if output == "json":
        rows: list[Any] = [{**msgspec.to_builtins(finding), "level": finding.level} for finding in ordered]
        write_json({"program": program, "findings": rows})
        return
    for file, group in groupby(ordered, key=lambda finding: finding.file):
        click.echo(style(one_line(file) if file else "Settings, and the rest", bold=True))
        click.echo()
        for finding in group:
            _write(finding)
    _write_summary(program, ordered)


def _write(finding: Finding) -> None:
    label = str(finding.line) if finding.line else ""
    first, *more = finding.theirs.splitlines() or [finding.subject]
    click.echo(f"{style(f'{label:>5}', dim=True)}  {one_line(first)}")
    for line in more:
        click.echo(f"{'':7}{one_line(line)}")
    mark = "write"
    for line in finding.ours.splitlines():
        kept = line[: len(line) - len(line.lstrip())] + one_line(line.lstrip())  # with its indentation
        click.echo(f"{'':7}{style(f'{mark:<{_WIDTH}}', fg='green')}{style(kept, fg='green')}" if line else "")
        mark = ""
    for advice in finding.advice:
        word, colour = _MARKS[advice.level]
        write_hanging(f"{'':7}{style(f'{word:<{_WIDTH}}', **colour)}", one_line(advice.text))
    click.echo()


def _write_summary(program: str, findings: list[Finding]) -> None:
    counts = ", ".join(f"{sum(each.kind == kind for each in findings)} {kind}s" for kind in _COUNTED)
    click.echo(style(f"{one_line(program)}: {counts}", bold=True))
    without = [finding for finding in findings if finding.level == "missing"]
    other = sum(finding.level == "differs" for finding in findings)
    click.echo(f"  {len(findings) - len(without) - other} behave alike, {other} work in another way,")
    click.echo(f"  {len(without)} have something without a counterpart{':' if without else '.'}")
    for finding in without:
        place = f"{finding.file}:{finding.line}" if finding.line else finding.file or finding.subject
        for advice in finding.advice:
            if advice.level == "missing":
                write_hanging(f"  {style(one_line(place), fg='red')}  ", one_line(advice.text))
