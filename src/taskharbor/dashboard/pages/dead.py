"""Dead letters by what they have in common, with what to do about each kind."""

from __future__ import annotations

from typing import Any

from taskharbor.dashboard.pages.content import PageContent, PageQuery, as_bad_query
from taskharbor.dashboard.pages.jobs import filter_arguments, given_filter
from taskharbor.ops import json_output
from taskharbor.ops.dead_kinds import read_kinds
from taskharbor.ops.operator import StoreReading

KEYS = ("fingerprint", "error", "type", "queue", "reason")
PAGE_KINDS = 25
MAX_PAGE_KINDS = 100


async def dead(reading: StoreReading, query: PageQuery) -> PageContent:
    """The kinds of dead jobs, the largest first."""
    by: Any = query.one_of("by", KEYS, "fingerprint")
    limit = query.whole("limit", PAGE_KINDS, MAX_PAGE_KINDS)
    given = given_filter(query)
    given.pop("state", None)
    arguments = filter_arguments(query, reading)
    arguments.pop("state", None)
    with as_bad_query(TypeError, ValueError):
        summary = await reading.client.dead(**arguments).asummary(by)
    kinds = await read_kinds(reading.driver, reading.now, summary, limit)
    view = {"summary": summary, "kinds": kinds, "by": by, "keys": KEYS, "given": given}
    return PageContent("dead.html", "Dead letters", json_output.dead_summary(summary, kinds, by), view, ("jobs",))
