"""Parse moments and durations that a person types as options."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import click


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
