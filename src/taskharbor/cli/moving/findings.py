"""What the report consists of: places in a program, the code there, what to write instead, and what to know."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from taskharbor.model.safe_repr import shown

Level = Literal["same", "differs", "missing"]
"""same: write it and it behaves alike. differs: it works in another way. missing: there is no counterpart."""
Kind = Literal["task", "schedule", "call", "setting", "other"]


class Advice(msgspec.Struct, frozen=True):
    """A sentence about a place."""

    level: Level
    text: str

    def __repr__(self) -> str:
        return shown(self, "level")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a program. `line` 0: somewhere in the file, or in no file at all (`file` is then empty)."""

    kind: Kind
    subject: str
    file: str = ""
    line: int = 0
    theirs: str = ""
    ours: str = ""
    advice: tuple[Advice, ...] = ()

    def __repr__(self) -> str:  # what stands in a program is not for logs
        return shown(self, "kind", "line")

    @property
    def level(self) -> Level:
        """The worst of what there is to say."""
        levels = {each.level for each in self.advice}
        return "missing" if "missing" in levels else "differs" if "differs" in levels else "same"


class MovingReport(msgspec.Struct, frozen=True):
    """Everything that was found: in the order of files and lines, what has no file last."""

    program: str
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return shown(self)

    def count(self, kind: Kind) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """The report as `--output json` prints it."""
        rows = [{**msgspec.to_builtins(finding), "level": finding.level} for finding in self.findings]
        return {"program": self.program, "findings": rows}


def report(program: str, findings: Iterable[Finding]) -> MovingReport:
    """A report whose files are relative to the current folder, where they lie below it."""
    here = os.getcwd()
    moved = [msgspec.structs.replace(finding, file=shown_path(finding.file, here)) for finding in findings]
    return MovingReport(
        program, tuple(sorted(moved, key=lambda finding: (not finding.file, finding.file, finding.line)))
    )


def shown_path(path: str, folder: str) -> str:
    """A path as a person would type it in the folder."""
    inside = path.startswith(folder.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, folder) if inside else path


def same(text: str) -> Advice:
    return Advice("same", text)


def differs(text: str) -> Advice:
    return Advice("differs", text)


def missing(text: str) -> Advice:
    return Advice("missing", text)
