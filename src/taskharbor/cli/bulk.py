"""The answer to a command over many jobs: which it was done for, and which were refused, with the reason."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from taskharbor.cli.errors import EXIT_REFUSED, safe_text
from taskharbor.cli.output import write, write_json
from taskharbor.cli.target import Target
from taskharbor.cli.text import one_line
from taskharbor.model.errors import TaskHarborError


@dataclass
class BulkResult:
    """Ids for which it was done, and ids with their errors for which it was not."""

    done: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, ids: Sequence[str], answers: Sequence[TaskHarborError | None]) -> BulkResult:
        """From what a driver answered."""
        many = cls()
        for id, answer in zip(ids, answers, strict=True):
            many.add(id, answer)
        return many

    def add(self, id: str, error: TaskHarborError | None) -> None:
        """Note one more."""
        if error is None:
            self.done.append(id)
        else:
            self.refused.append((id, str(error)))

    def __iadd__(self, other: BulkResult) -> BulkResult:
        self.done += other.done
        self.refused += other.refused
        return self


def end(many: BulkResult, what: str, target: Target) -> None:
    """Tell, and end with exit code 1 if one was refused."""
    if target.json:
        write_json({"done": many.done, "refused": [{"id": id, "error": error} for id, error in many.refused]})
    elif len(many.done) == 1:
        write(f"{one_line(many.done[0])} was {what}")
    elif many.done or not many.refused:
        write(f"{len(many.done)} jobs were {what}")
    if not target.json:
        for _, error in many.refused:
            click.echo(f"taskharbor: {safe_text(error)}", err=True)
    if many.refused:
        sys.exit(EXIT_REFUSED)
