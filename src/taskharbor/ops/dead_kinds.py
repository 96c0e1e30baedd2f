"""The kinds of dead jobs: a row for what several have in common, with one of them whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from taskharbor.drivers.base import Driver
from taskharbor.model.error_class import full_error_name
from taskharbor.model.job import JobInfo
from taskharbor.store.jobs import with_payload, without_content
from taskharbor.store.redaction import HIDDEN
from taskharbor.store.text import first_line

if TYPE_CHECKING:
    from taskharbor.store.summary import Summary, SummaryRow


@dataclass(frozen=True)
class DeadKind:
    """A row of the summary, with its sample, and the reason and last error of that, masked."""

    row: SummaryRow
    sample: JobInfo  # without its payload
    errors: tuple[str, str]

    @classmethod
    def of(cls, row: SummaryRow, whole: JobInfo) -> DeadKind:
        """From the whole record of the sample: only that can be masked."""
        return cls(row, without_content(whole), HIDDEN.errors(whole.job))

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
    return [await read_kind(driver, now, row) for row in summary.rows[:limit]]


async def read_kind(driver: Driver, now: datetime, row: SummaryRow) -> DeadKind:
    """One kind. Its sample is masked in a thread: to look for the values of a large payload takes a while."""
    return await asyncio.to_thread(DeadKind.of, row, await with_payload(driver, row.sample, now))
