"""Parse and format moments and durations for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import click

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def parse_moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Parse an option: an ISO 8601 moment with a time zone."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            "expected a moment such as 2030-01-31T09:00:00Z or 2030-01-31T09:00+01:00", ctx, param
        ) from None
    if found.tzinfo is None:
        raise click.BadParameter(
            f"expected a time zone: {value}Z for UTC, or an offset such as {value}+01:00", ctx, param
        )
    return found


def parse_duration(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Parse an option: seconds, or a number with ms, s, m, h or d."""
    if value is None:
        return None
    from taskharbor.drivers.dsn import span as read

    try:
        return read(value, "a duration")
    except ValueError:
        raise click.BadParameter("expected a duration such as 90, 90s, 15m, 2h or 1d", ctx, param) from None


def parse_duration_or_none(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> timedelta | Literal["none"] | None:
    """Parse an option: a duration, or the word none."""
    return "none" if value == "none" else parse_duration(ctx, param, value)


def parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | timedelta | None:
    """Parse an option: a moment, or a duration, which means that long ago."""
    if value is None or not value[:1].isdigit() or "-" in value or ":" in value:
        return parse_moment(ctx, param, value)
    try:
        return parse_duration(ctx, param, value)
    except click.BadParameter:
        raise click.BadParameter(
            "expected a duration such as 90s, 15m, 2h or 1d, for that long ago, or a moment such as "
            "2030-01-31T09:00:00Z",
            ctx,
            param,
        ) from None


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
