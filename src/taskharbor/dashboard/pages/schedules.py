"""Schedules, and one of them with what an edit would do. Shown only for a store whose driver offers them."""

from __future__ import annotations

from taskharbor.client.schedule_change import FoundSchedule, not_found, read_row
from taskharbor.client.schedule_info import info_of
from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import TaskHarborError
from taskharbor.ops.room import Sight
from taskharbor.ops.schedule_edit import FIELDS, EditPreview, fields_of, preview_edit
from taskharbor.ops.schedule_view import facts_of, local_of, note_of, rule_of, status_of, words_of

PAGE_SCHEDULES = 100
CHOICES = {"catch_up": ("latest", "none", "all"), "overlap": ("skip", "allow")}


async def schedules(sight: Sight, asked: Asked) -> Shown:
    """A page of schedules by name."""
    now = sight.now
    cursor, queue = asked.text("cursor"), asked.text("queue")
    try:
        page = await sight.driver.schedules(queue=queue, cursor=cursor, limit=asked.whole("limit", PAGE_SCHEDULES, 500))
    except ValueError as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    found = [info_of(row) for row in page.items]
    rows = [(info, status_of(info, now), rule_of(info), words_of(info), note_of(info, now)) for info in found]
    data = {"schedules": [facts_of(info, now) for info in found], "cursor": page.cursor}
    view = {"rows": rows, "cursor": page.cursor, "is_first": cursor is None, "queue": queue}
    return Shown("schedules.html", "Schedules", data, view, ("jobs",))


async def schedule(sight: Sight, asked: Asked) -> Shown:
    """One schedule: when it comes, what came of it, and the form that changes it. Fields in the address, as the form
    sends them, show what an edit would do."""
    name, now = asked.path["name"], sight.now
    try:
        check_name(name, "name")
    except ValueError as error:
        raise BadQuery(str(error)) from error
    found: FoundSchedule | None = await read_row(sight.driver, name)
    if found is None:
        raise not_found(name)
    info = info_of(found.row, found.schedule)
    typed = {key: asked.query[key] for field in FIELDS for key in (field, f"was_{field}") if key in asked.query}
    preview = EditPreview() if found.schedule is None else preview_edit(found.schedule, typed, now)
    shown = fields_of(info)
    data = {**facts_of(info, now), "upcoming": preview.slots} | (
        {"problem": preview.problem} if preview.problem else {}
    )
    view = {
        "info": info,
        "status": status_of(info, now),
        "rule": rule_of(info),
        "words": words_of(info),
        "note": note_of(info, now),
        "shown": shown,
        "typed": {field: typed.get(field, shown[field]) for field in FIELDS},
        "is_draft": any(typed.get(field, shown[field]) != shown[field] for field in FIELDS),
        "preview": preview,
        "local": [local_of(slot, typed.get("tz") or info.tz) for slot in preview.slots],
        "choices": CHOICES,
    }
    return Shown("schedule.html", f"Schedule {name}", data, view, ("jobs",))
