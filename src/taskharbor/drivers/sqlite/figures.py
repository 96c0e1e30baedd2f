"""Figures: what happened in which minute, added up for 72 hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.drivers.base import FIGURES_KEPT_FOR
from taskharbor.drivers.sqlite.records import is_moment
from taskharbor.drivers.sqlite.session import ReadSession, WriteSession
from taskharbor.drivers.sqlite.statements import statement
from taskharbor.model.bounds import check_figures
from taskharbor.model.job import Figures
from taskharbor.model.times import from_us, to_us

ADD = statement("add_figure")
OLD = statement("old_figures")
FORGET = "DELETE FROM taskharbor_figures WHERE minute = ? AND queue = ? AND name = ?"
MAX_FORGOTTEN_FIGURES = 1_000  # in one call
OF_ALL = statement("figures")
OF_QUEUE = statement("figures_of_queue")


def add_figures(session: WriteSession, rows: Sequence[Figures], now: datetime) -> None:
    """Add numbers to those of their minutes, and forget some that are too old."""
    check_figures(rows)
    for row in rows:
        minute = to_us(row.minute)
        for name, number in row.counts.items():
            if number:
                session.execute(ADD, (minute, row.queue, name, number))
    for old in session.all(OLD, to_us(now - FIGURES_KEPT_FOR), MAX_FORGOTTEN_FIGURES):
        session.execute(FORGET, old)


def figures(session: ReadSession, since: datetime, until: datetime, queue: str | None) -> list[Figures]:
    """The figures of the minutes from `since` to before `until`, in the order of minutes, then queues."""
    span = to_us(since), to_us(until)
    rows = session.all(OF_ALL, *span) if queue is None else session.all(OF_QUEUE, queue, *span)
    found: dict[tuple[int, str], dict[str, int]] = {}
    for minute, queue, name, number in rows:
        if is_moment(minute) and type(number) is int:  # nothing that another program wrote makes a read fail
            found.setdefault((minute, queue), {})[name] = number
    return [Figures(from_us(minute), queue, counts) for (minute, queue), counts in found.items()]
