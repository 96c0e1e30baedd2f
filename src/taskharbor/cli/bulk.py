"""Commands over several jobs: the ids that were typed, which jobs succeeded, and which were refused and why."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import click

from taskharbor.cli.errors import EXIT_REFUSED
from taskharbor.cli.output import write, write_json
from taskharbor.cli.store import call_store
from taskharbor.cli.target import Target
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import JobNotFound, TaskHarborError, WrongState
from taskharbor.model.job import State
from taskharbor.ops.ids import is_prefix, job_id
from taskharbor.ops.text import one_line, safe_text


@dataclass
class BulkResult:
    """Ids that succeeded, and ids that were refused with their errors."""

    done: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def add(self, id: str, error: TaskHarborError | None) -> None:
        """Record the outcome for one more job."""
        if error is None:
            self.done.append(id)
        else:
            self.refused.append((id, str(error)))

    def plus(self, ids: Sequence[str], errors: Sequence[TaskHarborError | None]) -> BulkResult:
        """This result and what was returned for further ids."""
        for id, error in zip(ids, errors, strict=True):
            self.add(id, error)
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


def would_change(target: Target, typed: Sequence[str], states: Collection[State], what: str) -> None:
    """Print what a command would do with the jobs of these ids; exit with code 1 if it would refuse one."""
    found, result = meant(target, typed)

    async def read(driver: Driver, now: datetime) -> BulkResult:
        for id in found:
            try:
                info = await driver.inspect(id, now)
            except JobNotFound as error:
                result.add(id, error)
                continue
            takes = " and ".join(state.value for state in State if state in states)
            wrong = WrongState(f"job {id} is {info.state}; this takes {takes}")
            result.add(id, None if info.state in states else wrong)
        return result

    finish(call_store(target, read), what, target, dry_run=True)


def finish(result: BulkResult, what: str, target: Target, *, dry_run: bool = False) -> None:
    """Print the result; exit with code 1 if a job was refused."""
    one, many = ("would be", "would be") if dry_run else ("was", "were")
    if target.json:
        refused = [{"id": id, "error": error} for id, error in result.refused]
        write_json({"would" if dry_run else "done": result.done, "refused": refused})
    elif len(result.done) == 1:
        write(f"{one_line(result.done[0])} {one} {what}")
    elif result.done or not result.refused:
        write(f"{len(result.done)} jobs {many} {what}")
    if not target.json:
        for _, error in result.refused:
            click.echo(f"taskharbor: {safe_text(error)}", err=True)
    if result.refused:
        sys.exit(EXIT_REFUSED)
