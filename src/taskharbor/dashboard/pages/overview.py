"""The overview: what needs an operator, what happened lately, and all queues."""

from __future__ import annotations

from taskharbor.dashboard.pages.content import PageContent, PageQuery
from taskharbor.ops import json_output
from taskharbor.ops.attention import read_attention
from taskharbor.ops.operator import StoreReading
from taskharbor.store.figures import DEFAULT_SPAN, SPANS, read_figures
from taskharbor.store.queues import read_busiest_rows

MAX_QUEUES = 25  # with a row on this page
TILES = ("ready", "inflight", "scheduled", "blocked", "dlq", "done")


async def overview(reading: StoreReading, query: PageQuery) -> PageContent:
    """The first page."""
    span = query.one_of("span", tuple(SPANS), DEFAULT_SPAN)
    found = await read_busiest_rows(reading.driver, reading.now, MAX_QUEUES)
    attention = read_attention(reading.driver, reading.now, found, reading.declared)
    points = await reading.part("what needs you", attention, None)
    figures = await reading.part("charts", read_figures(reading.driver, reading.now, span, among=found.names), None)
    data = {
        "at": reading.now,
        "queues": [row.as_json() for row in found.rows],
        "workers": [json_output.worker(worker) for worker in found.workers],
        "attention": [{"code": point.code, "level": point.level, "text": point.text} for point in points or ()],
    }
    view = {"found": found, "points": points, "figures": figures, "span": span, "spans": tuple(SPANS), "tiles": TILES}
    return PageContent("overview.html", "Overview", data, view, ("jobs", "workers", "figures"))
