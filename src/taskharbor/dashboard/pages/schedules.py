"""Schedules: what comes when, and what came of it. Shown only for a store whose driver offers them."""

from __future__ import annotations

from taskharbor.client.schedule_info import ScheduleInfo
from taskharbor.dashboard.pages.shown import Asked, PageMissing, Shown
from taskharbor.drivers.features import SCHEDULES, offers
from taskharbor.harbor import Harbor
from taskharbor.ops.room import Sight
from taskharbor.ops.schedule_view import facts_of, note_of, rule_of, status_of

MAX_SCHEDULES = 200


def has_schedules(harbor: Harbor) -> bool:
    """Whether the page has anything to read."""
    return offers(harbor.driver, SCHEDULES)


async def schedules(sight: Sight, asked: Asked) -> Shown:
    """All schedules by name."""
    if not offers(sight.driver, SCHEDULES):
        raise PageMissing("this store has no schedules: its driver does not offer them")
    found: list[ScheduleInfo] = []
    more = False
    async for info in sight.client.schedules.list():
        if len(found) >= MAX_SCHEDULES:
            more = True
            break
        found.append(info)
    rows = [(info, status_of(info, sight.now), rule_of(info), note_of(info, sight.now)) for info in found]
    data = {"schedules": [facts_of(info, sight.now) for info in found]}
    return Shown("schedules.html", "Schedules", data, {"rows": rows, "more": more}, ("jobs",))
