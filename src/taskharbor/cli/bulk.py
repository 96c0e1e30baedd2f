"""Commands over several jobs: the ids that were typed, which jobs succeeded, and which were refused and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import click

from taskharbor.cli.errors import EXIT_REFUSED, safe_text
from taskharbor.cli.output import write, write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target
from taskharbor.cli.text import one_line
from taskharbor.drivers.contract import Driver
from taskharbor.model.errors import JobNotFound, TaskHarborError
from taskharbor.ops.ids import is_prefix, job_id


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

    def plus(self, ids: Sequence[str], errors: Sequence[TaskHarborError | None]) -> BulkResult:
        """This result and what the driver returned for further ids."""
        self += BulkResult.of(ids, errors)
        return self

    def __iadd__(self, other: BulkResult) -> BulkResult:
        self.done += other.done
        self.refused += other.refused
        return self


def meant(target: Target, typed: Sequence[str]) -> tuple[list[str], BulkResult]:
    """The ids that a command was given, each whole and once; and those refused because no job, or several, fit."""
    result = BulkResult()
    if not any(map(is_prefix, typed)):
        return list(dict.fromkeys(typed)), result

    async def read(driver: Driver, now: datetime) -> list[str]:
        found: dict[str, None] = {}
        for each in typed:
            try:
                found[await job_id(driver, each, now)] = None
            except JobNotFound as error:
                result.add(each, error)
        return list(found)

    return call_store(target, read), result


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
