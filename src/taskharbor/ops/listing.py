"""Pages of jobs and flows for a person: a page that is short because the store looked at enough for one call is filled
up, as long as that takes no more time than a person waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from taskharbor.drivers.base import Driver
from taskharbor.model.clock import Clock
from taskharbor.model.job import FlowInfo, FlowPage, JobInfo, Page

FILL_S = 0.5  # no call begins later than this after the first one
MAX_CALLS = 10  # of at most MAX_SCANNED_JOBS or MAX_SCANNED_FLOWS each: what is rare is found, and a command still ends


async def find_page(driver: Driver, now: datetime, *, limit: int, clock: Clock | None = None, **query: Any) -> Page:
    """A page of `Driver.list`, filled up over several calls; short only at the end, or after MAX_CALLS of them, or
    with a `clock` after FILL_S by it."""
    items: list[JobInfo] = []
    cursor = await _fill(driver.list, items, now, limit, clock, query)
    return Page(tuple(items), cursor)


async def find_flows(
    driver: Driver, now: datetime, *, limit: int, clock: Clock | None = None, **query: Any
) -> FlowPage:
    """The same for `flows`."""
    items: list[FlowInfo] = []
    cursor = await _fill(driver.flows, items, now, limit, clock, query)
    return FlowPage(tuple(items), cursor)


async def _fill(
    read: Callable[..., Awaitable[Any]],
    items: list[Any],
    now: datetime,
    limit: int,
    clock: Clock | None,
    query: dict[str, Any],
) -> str | None:
    """Read pages into `items` until there are enough; returns the cursor behind the last."""
    cursor: str | None = query.pop("cursor", None)
    ends = None if clock is None else clock.monotonic() + FILL_S
    for _ in range(MAX_CALLS):
        page = await read(now=now, limit=limit - len(items), cursor=cursor, **query)
        items += page.items
        cursor = page.cursor
        if cursor is None or len(items) >= limit:
            break
        if clock is not None and ends is not None and clock.monotonic() > ends:
            break
    return cursor
