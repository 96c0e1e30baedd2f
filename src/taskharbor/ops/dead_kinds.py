"""The kinds of dead jobs: a row for what several have in common, with one of them whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from taskharbor.drivers.base import Driver
from taskharbor.model.error_class import full_error_name
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo
from taskharbor.ops.redaction import HIDDEN
from taskharbor.ops.text import first_line

if TYPE_CHECKING:
    from taskharbor.client.summary import Summary, SummaryRow


@dataclass(frozen=True)
class DeadKind:
    """A row of the summary, with its sample, and the reason and last error of that, masked."""

    row: SummaryRow
    sample: JobInfo  # without its payload
    errors: tuple[str, str]

    @classmethod
    def of(cls, row: SummaryRow, whole: JobInfo) -> DeadKind:
        """From the whole record of the sample: only that can be masked."""
        light = replace(whole.job, payload=b"", result=None if whole.job.result is None else b"")
        return cls(row, replace(whole, job=light), HIDDEN.errors(whole.job))

    @property
    def error(self) -> str:
        """Why the sample died, in one line."""
        reason, error = map(first_line, self.errors)
        return error or reason

    def value(self, by: str) -> str:
        """What the jobs of the row have in common; of a reason, the one of the sample, masked."""
        return self.errors[0] if by == "reason" else self.row.value

    def chosen_by(self, by: str) -> str:
        """The value of a filter that chooses the jobs of the row and no others."""
        return full_error_name(self.row.value) if by == "error" else self.row.value


async def read_kinds(driver: Driver, now: datetime, summary: Summary, limit: int) -> list[DeadKind]:
    """The largest kinds of a summary, each with its sample whole; that costs one read a kind."""
    kinds = []
    for row in summary.rows[:limit]:
        sample = await whole_records(driver, now, [row.sample])
        kinds.append(DeadKind.of(row, sample[0] if sample else row.sample))
    return kinds


async def whole_records(driver: Driver, now: datetime, jobs: Sequence[JobInfo]) -> list[JobInfo]:
    """The jobs with their payloads: only a payload that is known can be masked in an error that quotes it."""
    found = []
    for info in jobs:
        try:
            found.append(await driver.inspect(info.job.id, now))
        except JobNotFound:
            continue
    return found
