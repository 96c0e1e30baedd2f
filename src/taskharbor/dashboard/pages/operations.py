"""Operations over many jobs, the audit, and what a new operation would change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from taskharbor.dashboard.pages.jobs import filter_arguments, given_filter
from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown, without_content
from taskharbor.model.errors import TaskHarborError
from taskharbor.ops import json_output
from taskharbor.ops.audit_page import outcome_of, read_audit, what_of
from taskharbor.ops.operation_words import outcome_words, progress_words
from taskharbor.ops.operations import OperationRow, read_operations
from taskharbor.ops.preview import read_preview
from taskharbor.ops.room import Sight

NEWEST_OPERATIONS = 15
PAGE_ENTRIES = 50
ACTIONS = ("requeue", "cancel", "delete")


async def operations(sight: Sight, asked: Asked) -> Shown:
    """The newest operations, and who changed what."""
    try:
        entries, cursor = await read_audit(
            sight.driver,
            since=asked.moment("since", sight.now),
            until=asked.moment("until", sight.now),
            by=asked.text("by"),
            cursor=asked.text("cursor"),
            limit=asked.whole("limit", PAGE_ENTRIES, 500),
        )
    except ValueError as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    is_first = asked.text("cursor") is None
    recent = sight.now - timedelta(days=7)
    found = await read_operations(sight.client, since=recent, limit=NEWEST_OPERATIONS) if is_first else []
    data = {
        "operations": [json_output.operation(row) for row in found],
        "entries": [json_output.audit_entry(entry) for entry in entries],
        "cursor": cursor,
    }
    view = {
        "operations": [(row, _standing(row)) for row in found],
        "entries": [(entry, what_of(entry), outcome_of(entry)) for entry in entries],
        "cursor": cursor,
        "by": asked.text("by"),
        "is_first": is_first,
    }
    return Shown("operations.html", "Operations", data, view, ("jobs",))


def _standing(row: OperationRow) -> str:
    if row.progress is not None and not row.status.ended:
        return progress_words(row.progress)
    return outcome_words(row)


async def new_operation(sight: Sight, asked: Asked) -> Shown:
    """What an operation would change, before it begins: how many jobs, as of when, and some of them."""
    action = asked.one_of("action", ACTIONS, "requeue")
    given = given_filter(asked)
    jobs = sight.client.jobs(**checked_filter(asked, sight))
    try:
        preview = await read_preview(sight.driver, sight.now, sight.actions, jobs, action)
    except (TypeError, ValueError) as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    if "until" not in given:
        given = {**given, "until": preview.found.cut.isoformat()}
    data = {
        "action": action,
        "jobs": preview.found.count.n,
        "capped": preview.found.count.capped,
        "cut": preview.found.cut,
        "limit": None,
        "sample": [json_output.dead(info) for info in preview.sample],
        "notes": preview.notes,
    }
    kept = replace(preview, sample=list(map(without_content, preview.sample)))
    view = {"action": action, "given": given, "preview": kept, "jobs": jobs}
    return Shown("new_operation.html", f"{action.capitalize()} jobs", data, view)


def checked_filter(asked: Asked, sight: Sight) -> dict[str, Any]:
    """The filter of an operation, which must not be empty; as arguments of `client.jobs`."""
    arguments = filter_arguments(asked, sight)
    if not arguments:
        raise BadQuery("an operation needs a filter, such as state=dlq: expected at least one")
    try:
        sight.client.jobs(**arguments)
    except (TypeError, ValueError) as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    return arguments
