"""Schedules as operators read them: when each comes, what became of its slots, and which one needs a person.

A schedule that is declared in code is fired by workers of that code alone. So if it is overdue, its declaration may
have been removed: nothing fires it any more, and it stays in the store until an operator deletes it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from taskharbor.ops.json_output import fields
from taskharbor.policy.cron import parse_cron
from taskharbor.policy.wall_clock import zone_of
from taskharbor.store.schedules import ScheduleInfo
from taskharbor.store.text import format_duration, relative

OVERDUE_AFTER = timedelta(minutes=1)
"""A due schedule that no worker has fired for this long needs a look."""

ENDED, PAUSED, OVERDUE, UNREADABLE, WAITING = "ended", "paused", "overdue", "unreadable", "waiting"
DELETED = "deleted"


def status_of(info: ScheduleInfo, now: datetime) -> str:
    """One word: unreadable, deleted, paused, ended, overdue or waiting."""
    if info.problem:
        return UNREADABLE
    if info.deleted:
        return DELETED
    if info.paused:
        return PAUSED
    if info.next_at is None:
        return ENDED
    return OVERDUE if now - info.next_at > OVERDUE_AFTER else WAITING


def rule_of(info: ScheduleInfo) -> str:
    """When it comes, in one phrase.

    >>> rule_of(ScheduleInfo(name="a", queue="q", cron="30 2 * * *", tz="Europe/Zurich"))
    '30 2 * * * Europe/Zurich'
    >>> rule_of(ScheduleInfo(name="a", queue="q", every=timedelta(minutes=5)))
    'every 5m'
    """
    if info.every is not None:
        return f"every {format_duration(info.every)}"
    return f"{info.cron} {info.tz}" if info.cron else ""


def words_of(info: ScheduleInfo) -> str:
    """A cron expression in words; empty for an interval, which needs none, and for one that cannot be read.

    >>> words_of(ScheduleInfo(name="a", queue="q", cron="30 2 * * *"))
    'At 02:30 every day'
    """
    if not info.cron:
        return ""
    try:
        return parse_cron(info.cron).in_words
    except ValueError:
        return ""


def next_of(info: ScheduleInfo, now: datetime) -> str:
    """Its next slot in relation to now, or why there is none."""
    status = status_of(info, now)
    if status in (DELETED, PAUSED, ENDED) or info.next_at is None:
        return status
    if status == OVERDUE:
        return f"overdue, {relative(info.next_at, now)}"
    return relative(info.next_at, now) if info.next_at > now else "now"


def note_of(info: ScheduleInfo, now: datetime, declared: Collection[str] | None = None, app: str = "") -> str:
    """What a person should know about it; empty if everything is as usual. `declared`: the schedules of an app."""
    if info.problem:
        return info.problem
    notes = []
    if info.declared and declared is not None and info.name not in declared:
        notes.append(f"{app} does not declare it (any more): only workers that do would fire it")
    elif status_of(info, now) == OVERDUE:
        who = "whose code declares it" if info.declared else f"that serves its queue {info.queue}"
        notes.append(f"overdue: no worker {who} has fired it")
    if info.deleted:
        notes.append("deleted, although code declares it: schedule reset brings it back")
    if info.edited:
        notes.append("edited")
    for number, what in ((info.missed, "missed"), (info.skipped, "skipped")):
        if number:
            notes.append(f"{number} {what}")
    return "; ".join(notes)


def local_of(slot: datetime, tz: str) -> str:
    """A slot as the clocks of its zone show it; in UTC if this machine does not know the zone.

    >>> local_of(datetime(2030, 1, 31, 1, 30, tzinfo=UTC), "Europe/Zurich")
    'Thu 31 Jan 2030, 02:30:00 CET'
    """
    try:
        zone = zone_of(tz)
    except ValueError:
        zone = UTC
    return f"{slot.astimezone(zone):%a %d %b %Y, %H:%M:%S %Z}"


def facts_of(
    info: ScheduleInfo, now: datetime, declared: Collection[str] | None = None, app: str = ""
) -> dict[str, Any]:
    """A schedule for a script: what `schedule list` and `schedule show` write as JSON."""
    rule = ("jitter", "catch_up", "overlap", "start_at", "end_at")
    state = ("next_at", "last_at", "last_id", "deleted", "paused", "edited", "declared", "fired", "missed", "skipped")
    return {
        **fields(info, "name", "queue", "type"),
        "status": status_of(info, now),
        **fields(info, "cron", "every", "tz", *state, *rule),
        "note": note_of(info, now, declared, app) or None,
    }
