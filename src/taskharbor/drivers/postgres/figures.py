"""Figures by minute and queue, as programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import FIGURES_KEPT_FOR
from taskharbor.drivers.postgres.records import nearest_moment, to_json
from taskharbor.drivers.postgres.statement import Program, Statement, quoted, value
from taskharbor.model.job import EPOCH, Figures
from taskharbor.model.times import to_us


def add_figures(schema: str, rows: Sequence[Figures], now: datetime) -> Program[None]:
    """Add figures that were checked."""
    given = [
        {"minute": to_us(row.minute), "queue": row.queue, "name": name, "n": number}
        for row in rows
        for name, number in row.counts.items()
        if number
    ]
    oldest = to_us(max(now - FIGURES_KEPT_FOR, EPOCH))
    yield value(schema, "add_figures", (to_json(given), "text"), (oldest, "bigint"))


def read_figures(schema: str, since: datetime, until: datetime, queue: str | None) -> Program[list[Figures]]:
    """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
    chosen = "" if queue is None else " and queue = ?"
    rows = yield Statement(
        f"select minute, queue, name, n from {quoted(schema)}.figures "
        f"where minute >= ? and minute < ? and n > 0{chosen} order by minute, queue, name",
        (to_us(since), to_us(until), *(() if queue is None else (queue,))),
    )
    found: dict[tuple[int, str], dict[str, int]] = {}
    for minute, of_queue, name, number in rows:
        found.setdefault((minute, of_queue), {})[name] = number
    return [Figures(nearest_moment(minute), of_queue, counts) for (minute, of_queue), counts in found.items()]
