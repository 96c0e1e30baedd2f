"""The result of a command over several jobs: which succeeded, and which were refused and why."""

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
    """Ids that succeeded, and ids that were refused with their errors."""

    done: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def of(cls, ids: Sequence[str], errors: Sequence[TaskHarborError | None]) -> BulkResult:
        """Pair ids with what the driver returned for each."""
        result = cls()
        for id, error in zip(ids, errors, strict=True):
            result.add(id, error)
        return result

    def add(self, id: str, error: TaskHarborError | None) -> None:
        """Record the outcome for one more job."""
        if error is None:
            self.done.append(id)
        else:
            self.refused.append((id, str(error)))

    def __iadd__(self, other: BulkResult) -> BulkResult:
        self.done += other.done
        self.refused += other.refused
        return self


def finish(result: BulkResult, what: str, target: Target) -> None:
    """Print the result; exit with code 1 if a job was refused."""
    if target.json:
        write_json({"done": result.done, "refused": [{"id": id, "error": error} for id, error in result.refused]})
    elif len(result.done) == 1:
        write(f"{one_line(result.done[0])} was {what}")
    elif result.done or not result.refused:
        write(f"{len(result.done)} jobs were {what}")
    if not target.json:
        for _, error in result.refused:
            click.echo(f"taskharbor: {safe_text(error)}", err=True)
    if result.refused:
        sys.exit(EXIT_REFUSED)
