"""What `Driver.list` is asked for, checked once for every driver."""

from __future__ import annotations

from typing import NamedTuple

from taskharbor.drivers.cursor import decode_cursor
from taskharbor.model.job import State


class JobQuery(NamedTuple):
    """Which jobs to list. None stands for any; `after` is the id behind which the page begins."""

    queue: str | None
    state: State | None
    type: str | None
    group: str | None
    flow_id: str | None
    after: str | None
    limit: int


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
