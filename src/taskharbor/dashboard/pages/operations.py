"""Operations over many jobs, the audit, and what a new operation would change."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from taskharbor.dashboard.pages.content import BadQuery, PageContent, PageQuery, as_bad_query
from taskharbor.dashboard.pages.jobs import filter_arguments, given_filter
from taskharbor.ops import json_output
from taskharbor.ops.operations import (
    OperationRow,
    outcome_of,
    outcome_words,
    progress_words,
    read_operations,
    read_preview,
    what_of,
)
from taskharbor.ops.operator import StoreReading
from taskharbor.store.audit import read_audit
from taskharbor.store.jobs import without_content

NEWEST_OPERATIONS = 15
PAGE_ENTRIES = 50
ACTIONS = ("requeue", "cancel", "delete")


async def operations(reading: StoreReading, query: PageQuery) -> PageContent:
    """The newest operations, and who changed what."""
    with as_bad_query():
        entries, cursor = await read_audit(
            reading.driver,
            since=query.moment("since", reading.now),
            until=query.moment("until", reading.now),
            by=query.text("by"),
            cursor=query.text("cursor"),
            limit=query.whole("limit", PAGE_ENTRIES, 500),
        )
    is_first = query.text("cursor") is None
    recent = reading.now - timedelta(days=7)
    found = await read_operations(reading.store, since=recent, limit=NEWEST_OPERATIONS) if is_first else []
    data = {
        "operations": [json_output.operation(row) for row in found],
        "entries": [json_output.audit_entry(entry) for entry in entries],
        "cursor": cursor,
    }
    view = {
        "operations": [(row, _standing(row)) for row in found],
        "entries": [(entry, what_of(entry), outcome_of(entry)) for entry in entries],
        "cursor": cursor,
        "by": query.text("by"),
        "is_first": is_first,
    }
    return PageContent("operations.html", "Operations", data, view, ("jobs",))


def _standing(row: OperationRow) -> str:
    if row.progress is not None and not row.status.ended:
        return progress_words(row.progress)
    return outcome_words(row)


async def new_operation(reading: StoreReading, query: PageQuery) -> PageContent:
    """What an operation would change, before it begins: how many jobs, as of when, and some of them."""
    action = query.one_of("action", ACTIONS, "requeue")
    given = given_filter(query)
    jobs = reading.client.jobs(**checked_filter(query, reading))
    with as_bad_query(TypeError, ValueError):
        preview = await read_preview(reading.driver, reading.now, reading.actions, jobs, action)
    if "until" not in given:
        given = {**given, "until": preview.found.cut.isoformat()}
    data = {
        "action": action,
        "jobs": preview.found.count.n,
        "capped": preview.found.count.capped,
        "cut": preview.found.cut,
        "limit": None,
        # In a thread: to look for the values of a large payload takes a while.
        "sample": await asyncio.to_thread(lambda: list(map(json_output.dead, preview.sample))),
        "notes": preview.notes,
    }
    kept = replace(preview, sample=list(map(without_content, preview.sample)))
    view = {"action": action, "given": given, "preview": kept, "jobs": jobs}
    return PageContent("new_operation.html", f"{action.capitalize()} jobs", data, view)


def checked_filter(query: PageQuery, reading: StoreReading) -> dict[str, Any]:
    """The filter of an operation, which must not be empty; as arguments of `client.jobs`."""
    arguments = filter_arguments(query, reading)
    if not arguments:
        raise BadQuery("an operation needs a filter, such as state=dlq: expected at least one")
    with as_bad_query(TypeError, ValueError):
        reading.client.jobs(**arguments)
    return arguments
