"""Dead letters by what they have in common, with what to do about each kind."""

from __future__ import annotations

import asyncio
from typing import Any

from taskharbor.dashboard.pages.content import PageContent, PageQuery, as_bad_query
from taskharbor.dashboard.pages.jobs import filter_arguments, filter_query, given_filter
from taskharbor.model.job import State
from taskharbor.ops import json_output
from taskharbor.ops.dead_kinds import read_kinds
from taskharbor.ops.operator import StoreReading
from taskharbor.store.pages import read_items
from taskharbor.store.summary import MAX_SUMMARISED_JOBS, summarise

KEYS = ("fingerprint", "error", "type", "queue", "reason")
PAGE_KINDS = 25
MAX_PAGE_KINDS = 100
PAGE_JOBS = 1_000
KINDS_S = 4.0  # of the page's time are for what follows; jobs that were not read until then are not counted


async def dead(reading: StoreReading, query: PageQuery) -> PageContent:
    """The kinds of dead jobs, the largest first."""
    by: Any = query.one_of("by", KEYS, "fingerprint")
    limit = query.whole("limit", PAGE_KINDS, MAX_PAGE_KINDS)
    given = given_filter(query)
    given.pop("state", None)
    with as_bad_query(TypeError, ValueError):
        reading.client.jobs(**filter_arguments(query, reading))  # which checks them
        filters = filter_query(query, reading) | {"state": State.DLQ}
        found, more = await read_items(
            reading.driver.list,
            page=PAGE_JOBS,
            most=MAX_SUMMARISED_JOBS,
            is_late=lambda: asyncio.get_running_loop().time() > reading.deadline - KINDS_S,
            now=reading.now,
            order="-id",
            payloads=False,
            **filters,
        )
    summary = summarise(found, by, complete=more is None)
    kinds = await read_kinds(reading.driver, reading.now, summary, limit)
    view = {"summary": summary, "kinds": kinds, "by": by, "keys": KEYS, "given": given}
    return PageContent("dead.html", "Dead letters", json_output.dead_summary(summary, kinds, by), view, ("jobs",))
