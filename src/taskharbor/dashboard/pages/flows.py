"""Workflows, and one of them as a drawing."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from taskharbor.dashboard.pages.content import PageContent, PageQuery, as_bad_query
from taskharbor.flow.graph import step_name
from taskharbor.flow.summary import durations_of, progress_of
from taskharbor.model.job import FlowInfo, FlowStatus, State
from taskharbor.ops import json_output
from taskharbor.ops.flow_view import next_commands, view_of
from taskharbor.ops.operator import StoreReading
from taskharbor.store.flows import list_flows, read_flow
from taskharbor.store.ids import flow_id
from taskharbor.store.pages import fill_page

PAGE_FLOWS = 50
MAX_ROWS = 200
MAX_SHAPE_JOBS = 50  # of each workflow of a list
STATUSES = tuple(status.value for status in FlowStatus)


@dataclass(frozen=True)
class FlowShape:
    """A workflow in a list: the task that it begins with, and how many of its jobs are done and dead. `more`: it has
    others."""

    first: str
    jobs: int
    done: int
    dead: int
    more: bool


async def flows(reading: StoreReading, query: PageQuery) -> PageContent:
    """A page of workflows, the newest first."""
    status = query.text("status")
    if status is not None:
        status = query.one_of("status", STATUSES, "")
    with as_bad_query():
        page = await fill_page(
            partial(list_flows, reading.driver),
            query.whole("limit", PAGE_FLOWS, PAGE_FLOWS),
            reading.store.clock,
            now=reading.now,
            cursor=query.text("cursor"),
            order="-id",
            status=status,
            since=query.moment("since", reading.now),
            until=query.moment("until", reading.now),
        )
    data = {"flows": [json_output.flow_summary(each) for each in page.items], "cursor": page.cursor}
    if query.json:
        return PageContent("flows.html", "Workflows", data, {})
    shapes = await reading.part("what the workflows hold", _shapes(reading, [each.id for each in page.items]), {})
    view = {"page": page, "status": status, "statuses": STATUSES, "is_first": query.text("cursor") is None}
    return PageContent("flows.html", "Workflows", data, view | {"shapes": shapes}, ("jobs",))


async def _shapes(reading: StoreReading, ids: list[str]) -> dict[str, FlowShape]:
    """What is in each of these flows, as far as its first jobs tell."""

    async def shape(id: str) -> FlowShape | None:
        found = await reading.driver.list(flow_id=id, limit=MAX_SHAPE_JOBS, now=reading.now, payloads=False)
        if not found.items:
            return None
        states = Counter(info.state for info in found.items)
        done, dead = states[State.DONE], states[State.DLQ]
        return FlowShape(step_name(found.items[0]), len(found.items), done, dead, found.cursor is not None)

    found = await asyncio.gather(*map(shape, ids))
    return {id: shape for id, shape in zip(ids, found, strict=True) if shape is not None}


async def flow(reading: StoreReading, query: PageQuery) -> PageContent:
    """One workflow."""
    id = await flow_id(reading.driver, query.path["id"], reading.now)
    info, complete = await read_flow(reading.driver, id, reading.now)
    # In a thread: of ten thousand jobs it takes longer than the other requests of this process may wait.
    if query.json:
        return PageContent("flow.html", "Workflow", await asyncio.to_thread(json_output.flow, info, complete), {})
    view = await asyncio.to_thread(_view, info, complete)
    return PageContent("flow.html", f"Workflow {id}", None, view, ("jobs",))


def _view(info: FlowInfo, complete: bool) -> dict[str, Any]:
    found = view_of(info, MAX_ROWS)
    done, total = progress_of(info)
    took = durations_of(info)
    shown = [each.jobs[0].job.id for each in (*found.rows, *found.graph.boxes)]
    return {
        "info": replace(info, nodes=(), edges=()),
        "complete": complete,
        "graph": found.graph,
        "rows": found.rows,
        "more": found.more,
        "took": {id: took[id] for id in shown if id in took},
        "done": done,
        "dead": sum(node.state is State.DLQ for node in info.nodes),
        "total": total,
        "next": next_commands(info),
    }
