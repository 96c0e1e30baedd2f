"""Schedules, and one of them with what an edit would do. PageContent only for a store whose driver offers them."""

from __future__ import annotations

from taskharbor.dashboard.pages.content import PageContent, PageQuery, as_bad_query
from taskharbor.model.bounds import check_name
from taskharbor.ops.operator import StoreReading
from taskharbor.ops.schedule_edit import FIELDS, EditPreview, fields_of, preview_edit
from taskharbor.ops.schedule_view import facts_of, local_of, note_of, rule_of, status_of, words_of
from taskharbor.store.schedules import FoundSchedule, info_of, not_found, read_row

PAGE_SCHEDULES = 100
CHOICES = {"catch_up": ("latest", "none", "all"), "overlap": ("skip", "allow")}


async def schedules(reading: StoreReading, query: PageQuery) -> PageContent:
    """A page of schedules by name."""
    now = reading.now
    cursor, queue = query.text("cursor"), query.text("queue")
    with as_bad_query():
        page = await reading.driver.schedules(
            queue=queue, cursor=cursor, limit=query.whole("limit", PAGE_SCHEDULES, 500)
        )
    found = [info_of(row) for row in page.items]
    rows = [(info, status_of(info, now), rule_of(info), words_of(info), note_of(info, now)) for info in found]
    data = {"schedules": [facts_of(info, now) for info in found], "cursor": page.cursor}
    view = {"rows": rows, "cursor": page.cursor, "is_first": cursor is None, "queue": queue}
    return PageContent("schedules.html", "Schedules", data, view, ("jobs",))


async def schedule(reading: StoreReading, query: PageQuery) -> PageContent:
    """One schedule: when it comes, what came of it, and the form that changes it. Fields in the address, as the form
    sends them, show what an edit would do."""
    name, now = query.path["name"], reading.now
    with as_bad_query():
        check_name(name, "name")
    found: FoundSchedule | None = await read_row(reading.driver, name)
    if found is None:
        raise not_found(name)
    info = info_of(found.row, found.schedule)
    typed = {key: query.values[key] for field in FIELDS for key in (field, f"was_{field}") if key in query.values}
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
    return PageContent("schedule.html", f"Schedule {name}", data, view, ("jobs",))
