"""`schedules` and `due_schedules`, written once: arguments are checked here, and a driver gets them as a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from taskharbor.drivers.cursor import decode_due, decode_schedule
from taskharbor.model.bounds import check_moment, check_name
from taskharbor.model.errors import InvalidJob
from taskharbor.model.schedule import SchedulePage

MAX_SCHEDULES_PER_PAGE = 1_000


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


class SchedulesVerbs:
    """The verbs `schedules` and `due_schedules`, on top of `list_schedules` and `list_due_schedules`: a driver inherits
    them and implements those two."""

    async def list_schedules(self, wanted: ScheduleQuery) -> SchedulePage:
        """The page that `wanted` describes: schedules in the order of their names."""
        raise NotImplementedError

    async def list_due_schedules(self, wanted: DueQuery) -> SchedulePage:
        """The page that `wanted` describes: schedules in the order of `next_at`, then of names."""
        raise NotImplementedError

    async def schedules(
        self,
        *,
        names: Sequence[str] | None = None,
        queue: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> SchedulePage:
        _check_limit(limit)
        after = None if cursor is None else decode_schedule(cursor)
        asked = None if names is None else tuple(sorted(set(_storable(names))))
        if asked == () or (queue is not None and not _storable((queue,))):
            return SchedulePage(())
        return await self.list_schedules(ScheduleQuery(asked, queue, after, min(limit, MAX_SCHEDULES_PER_PAGE)))

    async def due_schedules(
        self, queues: Sequence[str], now: datetime, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        _check_limit(limit)
        check_moment(now, "now")
        after = None if cursor is None else decode_due(cursor)
        asked = tuple(dict.fromkeys(_storable(queues)))
        if not asked:
            return SchedulePage(())
        return await self.list_due_schedules(DueQuery(asked, now, after, min(limit, MAX_SCHEDULES_PER_PAGE)))


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")


def _storable(names: Iterable[str]) -> list[str]:
    """Those that a schedule or a queue can have: not every store can be asked for the others."""
    found = []
    for name in names:
        try:
            check_name(name, "name")
        except InvalidJob:
            continue
        found.append(name)
    return found
