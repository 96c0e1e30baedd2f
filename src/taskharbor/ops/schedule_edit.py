"""Changes of a schedule that a person typed into fields, and the slots that would follow from them.

The fields show what is in force. Only what differs from that (`was_…`, sent along) is changed, so two people who edit
different options at the same time do not undo each other's change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from taskharbor.drivers.dsn import span
from taskharbor.ops.job_edit import BadEdit, moment_of

if TYPE_CHECKING:
    from taskharbor.schedules.body import Schedule
    from taskharbor.schedules.rule import RuleOptions
    from taskharbor.store.schedules import ScheduleInfo

FIELDS = ("cron", "every", "tz", "jitter", "catch_up", "overlap", "start_at", "end_at")
PREVIEW_SLOTS = 5
MAX_FIELD_CHARS = 300
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class EditPreview:
    """The next slots as they would be with what was typed; or why that makes no sense."""

    slots: tuple[datetime, ...] = ()
    problem: str = ""


def fields_of(info: ScheduleInfo) -> dict[str, str]:
    """What the fields show: the options that are in force, as a person would type them."""
    return {
        "cron": info.cron or "",
        "every": "" if info.every is None else span_text(info.every),
        "tz": info.tz,
        "jitter": span_text(info.jitter),
        "catch_up": info.catch_up,
        "overlap": info.overlap,
        "start_at": "" if info.start_at is None else info.start_at.isoformat(),
        "end_at": "" if info.end_at is None else info.end_at.isoformat(),
    }


def span_text(value: timedelta) -> str:
    """A duration in one unit, as a field takes it.

    >>> span_text(timedelta(minutes=90)), span_text(timedelta(seconds=1.5)), span_text(timedelta(0))
    ('90m', '1500ms', '0s')
    """
    seconds = value.total_seconds()
    for unit, size in _UNITS:
        if seconds and not seconds % size:
            return f"{seconds / size:.0f}{unit}"
    return f"{value / timedelta(milliseconds=1):.0f}ms" if seconds else "0s"


def rule_edit_of(typed: Mapping[str, str]) -> RuleOptions:
    """The options that were changed in the fields; BadEdit for what cannot be read.

    >>> rule_edit_of({"every": "15m", "was_every": "", "cron": "0 4 * * *", "was_cron": "0 4 * * *"})
    {'every': datetime.timedelta(seconds=900)}
    """
    changed: dict[str, Any] = {}
    for name in FIELDS:
        text = typed.get(name, "").strip()
        if len(text) > MAX_FIELD_CHARS:
            raise BadEdit(f"{name}: expected at most {MAX_FIELD_CHARS} characters, got {len(text)}")
        if name in typed and text != typed.get(f"was_{name}", "").strip():
            changed[name] = _READ[name](text, name)
    for name, other in (("cron", "every"), ("every", "cron")):
        if changed.get(name, "") is None:  # emptied: the other one takes its place, or nothing does
            del changed[name]
            if changed.get(other) is None:
                raise BadEdit("expected either cron or every, got neither")
    return cast("RuleOptions", changed)


def preview_edit(schedule: Schedule, typed: Mapping[str, str], now: datetime) -> EditPreview:
    """What would follow from the fields."""
    from taskharbor.schedules.changes import with_edit
    from taskharbor.schedules.plan import preview_of

    try:
        given = rule_edit_of(typed)
        ahead = schedule.with_state(reached=max(now, schedule.body.reached))  # what was missed is not counted here
        edited = with_edit(ahead, given, now) if given else schedule
        return EditPreview(tuple(preview_of(edited, now, PREVIEW_SLOTS)))
    except (BadEdit, TypeError, ValueError, OverflowError) as error:
        return EditPreview(problem=str(error))


def _text(text: str, name: str) -> str | None:
    return text or None


def _span(text: str, name: str) -> timedelta | None:
    if not text:
        return None
    try:
        return span(text, name)
    except ValueError:
        raise BadEdit(f"{name}: expected a duration such as 90s, 15m or 2h") from None


def _moment(text: str, name: str) -> datetime | None:
    return moment_of(text, name, "none") if text else None


_READ: dict[str, Any] = {
    "cron": _text,
    "every": _span,
    "tz": lambda text, name: text,
    "jitter": lambda text, name: _span(text, name) or timedelta(0),
    "catch_up": lambda text, name: text,
    "overlap": lambda text, name: text,
    "start_at": _moment,
    "end_at": _moment,
}
