"""The overview: what needs an operator, what happened lately, and all queues."""

from __future__ import annotations

from taskharbor.dashboard.pages.shown import Asked, Shown
from taskharbor.ops import json_output
from taskharbor.ops.attention import read_attention
from taskharbor.ops.figures_view import DEFAULT_SPAN, SPANS, read_figures
from taskharbor.ops.queue_rows import read_busiest_rows
from taskharbor.ops.room import Sight

MAX_QUEUES = 25  # with a row on this page
TILES = ("ready", "inflight", "scheduled", "blocked", "dlq", "done")


async def overview(sight: Sight, asked: Asked) -> Shown:
    """The first page."""
    span = asked.one_of("span", tuple(SPANS), DEFAULT_SPAN)
    found = await read_busiest_rows(sight.driver, sight.now, MAX_QUEUES)
    points = await read_attention(sight.driver, sight.now, found, sight.declared)
    figures = await read_figures(sight.driver, sight.now, span, among=found.names)
    data = {
        "at": sight.now,
        "queues": [row.as_json() for row in found.rows],
        "workers": [json_output.worker(worker) for worker in found.workers],
        "attention": [{"code": point.code, "level": point.level, "text": point.text} for point in points],
    }
    view = {"found": found, "points": points, "figures": figures, "span": span, "spans": tuple(SPANS), "tiles": TILES}
    return Shown("overview.html", "Overview", data, view, ("jobs", "workers", "figures"))
