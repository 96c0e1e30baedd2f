"""`Driver.list`, written once: its arguments are checked here, and a driver gets them as a `JobQuery`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from taskharbor.drivers.cursor import decode_cursor
from taskharbor.model.job import Page, State


class JobQuery(NamedTuple):
    """Which jobs to list. None stands for any; `after` is the id behind which the page begins."""

    queue: str | None
    state: State | None
    type: str | None
    group: str | None
    flow_id: str | None
    after: str | None
    limit: int

    def names(self) -> dict[str, str]:
        """The names that a job must have, by the column of a SQL store."""
        given = {"queue": self.queue, "type": self.type, "grp": self.group, "flow_id": self.flow_id}
        return {column: name for column, name in given.items() if name is not None}


def job_query(
    *,
    queue: str | None,
    state: State | str | None,
    type: str | None,
    group: str | None,
    flow_id: str | None,
    cursor: str | None,
    limit: int,
) -> JobQuery:
    """The arguments of `Driver.list` as a value; ValueError for an unknown state, a damaged cursor or a limit below 1.

    >>> job_query(queue="mail", state="dlq", type=None, group=None, flow_id=None, cursor=None, limit=10).state
    <State.DLQ: 'dlq'>
    """
    if limit < 1:
        raise ValueError(f"limit: expected at least 1, got {limit}")
    after = decode_cursor(cursor) if cursor is not None else None
    return JobQuery(queue, State(state) if state is not None else None, type, group, flow_id, after, limit)


class ListVerb:
    """The verb `list`, on top of `list_jobs`: a driver inherits it and implements `list_jobs`."""

    async def list_jobs(self, now: datetime, wanted: JobQuery) -> Page:
        """The page that `wanted` describes: jobs in the order of their ids."""
        raise NotImplementedError

    async def list(
        self,
        *,
        now: datetime,
        queue: str | None = None,
        state: State | str | None = None,
        type: str | None = None,
        group: str | None = None,
        flow_id: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page:
        wanted = job_query(
            queue=queue, state=state, type=type, group=group, flow_id=flow_id, cursor=cursor, limit=limit
        )
        return await self.list_jobs(now, wanted)
