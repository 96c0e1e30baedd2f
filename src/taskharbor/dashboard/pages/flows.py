"""Workflows, and one of them as a drawing."""

from __future__ import annotations

from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown
from taskharbor.flow.summary import durations_of, progress_of
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.job import FlowStatus
from taskharbor.ops import json_output
from taskharbor.ops.flow_graph import graph_of
from taskharbor.ops.flow_view import next_commands, read_flow, rows_of
from taskharbor.ops.ids import flow_id
from taskharbor.ops.listing import find_flows
from taskharbor.ops.room import Sight

PAGE_FLOWS = 50
MAX_ROWS = 200
STATUSES = tuple(status.value for status in FlowStatus)


async def flows(sight: Sight, asked: Asked) -> Shown:
    """A page of workflows, the newest first."""
    status = asked.text("status")
    if status is not None:
        status = asked.one_of("status", STATUSES, "")
    try:
        page = await find_flows(
            sight.driver,
            sight.now,
            limit=asked.whole("limit", PAGE_FLOWS, PAGE_FLOWS),
            clock=sight.client.clock,
            cursor=asked.text("cursor"),
            order="-id",
            status=status,
            since=asked.moment("since", sight.now),
            until=asked.moment("until", sight.now),
        )
    except ValueError as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    data = {"flows": [json_output.flow_summary(each) for each in page.items], "cursor": page.cursor}
    view = {"page": page, "status": status, "statuses": STATUSES, "is_first": asked.text("cursor") is None}
    return Shown("flows.html", "Workflows", data, view, ("jobs",))


async def flow(sight: Sight, asked: Asked) -> Shown:
    """One workflow."""
    id = await flow_id(sight.driver, asked.path["id"], sight.now)
    info, complete = await read_flow(sight.driver, id, sight.now)
    rows = rows_of(info)
    done, total = progress_of(info)
    view = {
        "info": info,
        "complete": complete,
        "graph": graph_of(info),
        "rows": rows[:MAX_ROWS],
        "more": max(0, len(rows) - MAX_ROWS),
        "took": durations_of(info),
        "done": done,
        "total": total,
        "next": next_commands(info),
    }
    return Shown("flow.html", f"Workflow {id}", json_output.flow(info, complete), view, ("jobs",))
