"""What kinds of jobs there are: a filter's newest jobs, counted by what they have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, TypeAlias, get_args

import msgspec

from taskharbor.model.job import JobInfo, JobRecord
from taskharbor.model.safe_repr import shown

SummaryKey: TypeAlias = Literal["fingerprint", "error", "type", "reason", "queue"]

MAX_SUMMARISED_JOBS = 10_000


class SummaryRow(msgspec.Struct, frozen=True):
    """Jobs with the same value: how many, when the newest and the oldest ended or were enqueued, and one of them.

    `value` is empty for jobs that have none: a job that never failed has no fingerprint.
    """

    value: str
    n: int  # how many jobs have it
    newest: datetime  # when the newest ended, or was enqueued
    oldest: datetime  # when the oldest ended, or was enqueued
    sample: JobInfo  # one of them

    def __repr__(self) -> str:
        return shown(self, "n", "newest", "oldest", "sample")  # a reason may quote an argument


class Summary(msgspec.Struct, frozen=True):
    """The rows, the largest first. `complete` is False if there are more jobs than the newest 10,000 that were read."""

    by: str  # what the jobs have in common: fingerprint, error, type, reason or queue
    rows: tuple[SummaryRow, ...]  # one for each value
    jobs: int  # how many jobs were read
    complete: bool

    def __iter__(self) -> Iterator[SummaryRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def check_key(by: str) -> None:
    """ValueError for a key that jobs cannot be counted by."""
    if by not in get_args(SummaryKey):
        raise ValueError(f"by: expected one of {', '.join(get_args(SummaryKey))}, got {by!r}")


def summarise(jobs: Iterable[JobInfo], by: SummaryKey, *, complete: bool = True) -> Summary:
    """Count jobs by a value. Rows are in the order of their size; those of the same size by their newest job."""
    groups: dict[str, list[JobInfo]] = {}
    for info in jobs:
        groups.setdefault(_value(info.job, by), []).append(info)
    rows = [_row(value, members) for value, members in groups.items()]
    rows.sort(key=lambda row: (-row.n, -row.newest.timestamp(), row.value))
    return Summary(by, tuple(rows), sum(row.n for row in rows), complete)


def _row(value: str, members: list[JobInfo]) -> SummaryRow:
    moments = [_moment(info.job) for info in members]
    newest = max(range(len(members)), key=lambda at: (moments[at], members[at].job.id))
    return SummaryRow(value, len(members), moments[newest], min(moments), members[newest])


def _value(job: JobRecord, by: SummaryKey) -> str:
    if by == "fingerprint":
        return job.fingerprint
    if by == "error":
        return job.error_class
    if by == "type":
        return job.type
    return job.reason if by == "reason" else job.queue


def _moment(job: JobRecord) -> datetime:
    return job.finished_at or job.created_at
