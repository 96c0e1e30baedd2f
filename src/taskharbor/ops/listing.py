"""Pages of jobs for a person: a page that is short because the store looked at enough for one call is filled up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taskharbor.drivers.contract import ClientDriver
from taskharbor.model.job import JobInfo, Page

MAX_CALLS = 10  # of at most MAX_SCANNED_JOBS each: a rare job is found, and a command still ends


async def find_page(driver: ClientDriver, now: datetime, *, limit: int, **query: Any) -> Page:
    """A page of `Driver.list`, filled up over several calls; short only at the end, or after MAX_CALLS of them."""
    items: list[JobInfo] = []
    cursor: str | None = query.pop("cursor", None)
    for _ in range(MAX_CALLS):
        page = await driver.list(now=now, limit=limit - len(items), cursor=cursor, **query)
        items += page.items
        cursor = page.cursor
        if cursor is None or len(items) >= limit:
            break
    return Page(tuple(items), cursor)
