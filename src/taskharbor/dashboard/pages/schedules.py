"""Schedules: what comes when, and what came of it. Shown only for a store and a version that have them."""

from __future__ import annotations

from typing import Any

from taskharbor.dashboard.pages.shown import Asked, PageMissing, Shown
from taskharbor.drivers.features import SCHEDULES, offers
from taskharbor.harbor import Harbor
from taskharbor.ops.room import Sight

MAX_SCHEDULES = 200


def has_schedules(harbor: Harbor) -> bool:
    """Whether the page has anything to read."""
    return hasattr(type(harbor.client), "schedules") and offers(harbor.driver, SCHEDULES)


async def schedules(sight: Sight, asked: Asked) -> Shown:
    """All schedules by name."""
    if not (hasattr(type(sight.client), "schedules") and offers(sight.driver, SCHEDULES)):
        raise PageMissing("this store has no schedules: its driver does not offer them")
    client: Any = sight.client
    rows: list[Any] = []
    more = False
    async for info in client.schedules.list():
        if len(rows) >= MAX_SCHEDULES:
            more = True
            break
        rows.append(info)
    data = {"schedules": rows}
    return Shown("schedules.html", "Schedules", data, {"rows": rows, "more": more}, ("jobs",))
