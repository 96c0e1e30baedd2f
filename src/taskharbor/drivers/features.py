"""What a driver may offer on top of the verbs that it must have: named features, each with a Protocol of its own.

A driver lists the names in its attribute `features`. Core asks `offers` before it uses one, and does without it where
it can: a driver without `upcoming` is polled. Where it cannot, the caller gets FeatureMissing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from taskharbor.drivers.contract import Driver
from taskharbor.model.amendment import Amend
from taskharbor.model.audit import AuditPage, StoredAudit
from taskharbor.model.errors import DriverError, FeatureMissing, TaskHarborError
from taskharbor.model.job import Figures, FlowPage, FlowStatus, Page, Seen, State
from taskharbor.model.lease import Lease
from taskharbor.model.schedule import ScheduleChange, SchedulePage

ATTEMPTS = "attempts"
FILTERS = "filters"
UPCOMING = "upcoming"
AMEND = "amend"
FLOWS = "flows"
FIGURES = "figures"
SEEN = "seen"
AUDIT = "audit"
SCHEDULES = "schedules"

ALL_FEATURES = frozenset({ATTEMPTS, FILTERS, UPCOMING, AMEND, FLOWS, FIGURES, SEEN, AUDIT, SCHEDULES})

FIGURES_KEPT_FOR = timedelta(hours=72)
MAX_SCANNED_JOBS = 10_000
"""`list` looks at no more jobs than this in one call: a page may then be short, or empty, and still have a cursor."""
MAX_SCANNED_FLOWS = 1_000
"""The same for `flows`."""
MAX_SCANNED_AUDIT = 10_000
"""The same for `audit`."""


def features_of(driver: object) -> frozenset[str]:
    """The names of the features that a driver offers. A driver that lists none has the verbs of `Driver` alone."""
    return frozenset(getattr(driver, "features", ()))


def offers(driver: object, feature: str) -> bool:
    """Whether a driver offers a feature."""
    return feature in features_of(driver)


def require(driver: object, feature: str, what: str) -> Any:
    """The driver, if it offers a feature; else FeatureMissing, which names `what` cannot be done."""
    if not offers(driver, feature):
        raise FeatureMissing(
            f"{what} needs a store whose driver offers {feature!r}; {type(driver).__name__} does not. "
            "The drivers of TaskHarbor do: memory, SQLite, PostgreSQL and Redis"
        )
    return driver


class AttemptsDriver(Driver, Protocol):
    """`attempts`: the driver stores and returns began_at, ran_on, trail, error_class, fingerprint, note and keep_for,
    and `reserve` reports the execution that was lost before (`Reserved.lost_by`)."""

    async def extend(
        self,
        leases: Sequence[Lease],
        now: datetime,
        lease_for: timedelta,
        notes: Mapping[str, bytes] | None = None,
    ) -> Sequence[Lease | TaskHarborError]:
        """Extend leases, and store the note of each whose token is in `notes`, if its lease holds."""


class FiltersDriver(Driver, Protocol):
    """`filters`: listings by error, time and order, and counts that stop at a cap."""

    async def counts(self, now: datetime, cap: int | None = None) -> dict[str, dict[str, int]]:
        """How many jobs are in which state, by queue. With a cap, `cap` stands for "that many or more"."""

    # Last, because it hides the type of the same name from the annotations that follow it.
    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        error_class: str | None = None,
        error_name: str | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "id",
        payloads: bool = True,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Jobs in the order of their ids, or with `order="-id"` the last id first."""


class UpcomingDriver(Driver, Protocol):
    """`upcoming`: when a reserve may return more."""

    async def upcoming(self, queues: Sequence[str], now: datetime) -> datetime | None:
        """The earliest moment after `now` at which a reserve may return more although nothing is called in between;
        None if there is none. Early is allowed, late is not."""


class AmendDriver(Driver, Protocol):
    """`amend`: changes of stored jobs that are not running."""

    async def amend(self, changes: Sequence[Amend], now: datetime) -> list[TaskHarborError | None]:
        """Change jobs, each unless it is under a lease or done, or was reserved or amended since the editor saw it."""


class FlowsDriver(Driver, Protocol):
    """`flows`: a listing of flows."""

    async def flows(
        self,
        *,
        now: datetime,
        status: FlowStatus | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: str = "id",
        cursor: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Flows in the order of their ids, or with `order="-id"` the last id first."""


class FiguresDriver(Driver, Protocol):
    """`figures`: what happened in which minute, for 72 hours."""

    async def add_figures(self, rows: Sequence[Figures], now: datetime) -> None:
        """Add numbers to those of their minute and queue, and forget what is older than 72 hours."""

    async def figures(self, since: datetime, until: datetime, queue: str | None = None) -> list[Figures]:
        """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""


class SeenDriver(Driver, Protocol):
    """`seen`: changes of jobs on condition that they are still as they were read.

    `seen` has an item for each id, in their order. A job that differs in any of it is WrongState, and stays as it is.
    Without `seen` the verbs are those of `Driver`.
    """

    async def requeue(
        self,
        ids: Sequence[str],
        now: datetime,
        run_at: datetime | None = None,
        reset_attempts: bool = False,
        seen: Sequence[Seen] | None = None,
    ) -> list[DriverError | None]:
        """Bring dead and cancelled jobs back."""

    async def cancel(
        self, ids: Sequence[str], now: datetime, seen: Sequence[Seen] | None = None
    ) -> list[DriverError | None]:
        """Cancel what is not terminal."""

    async def delete(self, ids: Sequence[str], seen: Sequence[Seen] | None = None) -> list[DriverError | None]:
        """Forget jobs, in any state, that no unfinished job depends on."""


class AuditDriver(Driver, Protocol):
    """`audit`: who did what, for 90 days."""

    async def put_audit(self, entries: Sequence[StoredAudit], now: datetime) -> None:
        """Store entries, each in place of the one with the same id, and forget what is older than 90 days."""

    async def audit(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> AuditPage:
        """Entries with `since <= at < until`, in the order of `at`, then `id`, the last one first."""


class SchedulesDriver(Driver, Protocol):
    """`schedules`: rows that become due, and are changed together with the jobs that they store."""

    async def change_schedules(self, changes: Sequence[ScheduleChange], now: datetime) -> list[bool]:
        """Apply changes, each in a transaction, and tell for each whether the store is now as it says.

        False: the row has another revision. A change that was made before is True, and nothing happens again.
        """

    async def schedules(
        self,
        *,
        names: Sequence[str] | None = None,
        queue: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SchedulePage:
        """Schedules in the order of their names."""

    async def due_schedules(
        self, queues: Sequence[str], now: datetime, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Schedules of these queues with `next_at <= now`, in the order of `next_at`, then of names."""


class FullDriver(
    AttemptsDriver,
    FiltersDriver,
    UpcomingDriver,
    AmendDriver,
    FlowsDriver,
    FiguresDriver,
    SeenDriver,
    AuditDriver,
    SchedulesDriver,
    Protocol,
):
    """A driver with every feature."""
