"""Format moments and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def format_moment(moment: datetime | None) -> str:
    """Format a moment in UTC, to the second."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def format_duration(span: timedelta) -> str:
    """Format a duration in its two largest units.

    >>> format_duration(timedelta(hours=2, minutes=5, seconds=9)), format_duration(timedelta(milliseconds=300))
    ('2h 5m', '0.3s')
    """
    seconds = span.total_seconds()
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def relative(moment: datetime | None, now: datetime) -> str:
    """Format a moment relative to now: `in 5m`, `2h 5m ago`."""
    if moment is None:
        return ""
    return f"in {format_duration(moment - now)}" if moment > now else f"{format_duration(now - moment)} ago"


def with_distance(moment: datetime | None, now: datetime) -> str:
    """Format a moment in UTC, followed by its distance from now."""
    return "" if moment is None else f"{format_moment(moment)} ({relative(moment, now)})"
