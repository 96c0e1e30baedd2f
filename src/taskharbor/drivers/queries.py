"""The arguments of `list`, `flows`, `audit`, `schedules` and `due_schedules`, checked once: a driver gets a value."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from taskharbor.model.audit import StoredAudit
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.job import FlowInfo, FlowStatus, JobRecord, State, replace

MAX_SCHEDULES_PER_PAGE = 1_000


class JobQuery(NamedTuple):
    """Which jobs to list. None stands for any; `after` is the id behind which the page begins.

    `error_class` and `error_name` are one question: with both, a job fits that fits one of them.

    `since` and `until` (exclusive) are compared with `finished_at` of a job that has ended, else with `created_at`.
    """

    queue: str | None
    state: State | None
    type: str | None
    group: str | None
    flow_id: str | None
    after: str | None
    limit: int
    error_class: str | None = None
    fingerprint: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    newest: bool = False  # the last id first
    payloads: bool = True  # False: payload, result and trail of each record are left empty
    error_name: str | None = None

    def names(self) -> dict[str, str]:
        """The names that a job must have, by the column of a SQL store; of its error, `error_name` as well."""
        given = {
            "queue": self.queue,
            "type": self.type,
            "grp": self.group,
            "flow_id": self.flow_id,
            "error_class": self.error_class,
            "error_name": self.error_name,
            "fingerprint": self.fingerprint,
        }
        return {column: name for column, name in given.items() if name is not None}

    def fits(self, job: JobRecord, state: State) -> bool:
        """Whether a job is one of those: for stores that find it by other means."""
        at = job.finished_at if state.terminal and job.finished_at is not None else job.created_at
        return (
            (self.queue is None or job.queue == self.queue)
            and (self.state is None or state is self.state)
            and (self.type is None or job.type == self.type)
            and (self.group is None or job.group == self.group)
            and (self.flow_id is None or job.flow_id == self.flow_id)
            and self._fits_error(job.error_class)
            and (self.fingerprint is None or job.fingerprint == self.fingerprint)
            and (self.since is None or at >= self.since)
            and (self.until is None or at < self.until)
        )

    def _fits_error(self, error_class: str) -> bool:
        if self.error_name is not None and error_class.endswith(f".{self.error_name}"):
            return True
        return error_class == self.error_class or self.error_class is self.error_name is None

    def shown(self, job: JobRecord) -> JobRecord:
        """The record as the page shows it."""
        return job if self.payloads else replace(job, payload=b"", result=None, trail=b"")


class FlowQuery(NamedTuple):
    """Which flows to list. `since` and `until` (exclusive) are compared with `created_at` of the flow's first job in
    the order of ids."""

    status: FlowStatus | None
    since: datetime | None
    until: datetime | None
    newest: bool
    after: str | None
    limit: int

    def fits(self, flow: FlowInfo) -> bool:
        """Whether a flow is one of those: for stores that find it by other means."""
        return (
            (self.status is None or flow.status is self.status)
            and (self.since is None or flow.created_at >= self.since)
            and (self.until is None or flow.created_at < self.until)
        )


class AuditQuery(NamedTuple):
    """Which entries of the audit to list, the last one first. `after` is the moment and the id of the entry behind
    which the page begins."""

    since: datetime | None
    until: datetime | None
    by: str | None
    after: tuple[datetime, str] | None
    limit: int

    def fits(self, entry: StoredAudit) -> bool:
        """Whether an entry is one of those: for stores that find it by other means."""
        return (
            (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
            and (self.by is None or entry.by == self.by)
        )


def check_cap(cap: int | None) -> None:
    """ValueError unless the argument of `counts` is None or at least 1.

    >>> check_cap(0)
    Traceback (most recent call last):
    ValueError: cap: expected at least 1, got 0
    """
    if cap is not None and cap < 1:
        raise ValueError(f"cap: expected at least 1, got {cap}")


class ScheduleQuery(NamedTuple):
    """Which schedules to list, in the order of their names. None stands for any; `after` is the name behind which the
    page begins. `names` are different from each other, and in order."""

    names: tuple[str, ...] | None
    queue: str | None
    after: str | None
    limit: int


class DueQuery(NamedTuple):
    """Which due schedules to list, in the order of `next_at`, then of names. `after` is the moment and the name behind
    which the page begins. `queues` are different from each other, and at least one."""

    queues: tuple[str, ...]
    now: datetime
    after: tuple[datetime, str] | None
    limit: int


def check_page(limit: int, since: datetime | None = None, until: datetime | None = None) -> None:
    """ValueError for a limit below 1 or a naive moment: arguments of every listing."""
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            check_moment(moment, name)


def is_newest_first(order: str) -> bool:
    """Whether the last id comes first; ValueError for an unknown order."""
    if order not in ("id", "-id"):
        raise ValueError(f"order: expected 'id' or '-id', got {order!r}")
    return order == "-id"


def storable(names: Iterable[str]) -> list[str]:
    """Those that a schedule or a queue can have: not every store can be asked for the others."""
    return [name for name in names if _is_name(name)]


def _is_name(name: str) -> bool:
    try:
        check_name(name, "name")
    except InvalidJob:
        return False
    return True
