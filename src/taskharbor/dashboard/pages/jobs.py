"""Jobs by filter, a page at a time, the newest first; each that waits says why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from taskharbor.dashboard.pages.filter_text import NAMES, read_filter, write_filter
from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown, without_content
from taskharbor.drivers.heads import read_counts
from taskharbor.model.error_class import error_query
from taskharbor.model.errors import TaskHarborError
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.counting import cap_for
from taskharbor.ops.dead_kinds import whole_records
from taskharbor.ops.listing import find_page
from taskharbor.ops.room import Sight
from taskharbor.ops.waiting import read_waits, word_for

PAGE_JOBS = 50
MAX_PAGE_JOBS = 500
WHOLE_AT_ONCE = 10  # jobs of a page with their payloads, for scripts


async def jobs(sight: Sight, asked: Asked) -> Shown:
    """A page of jobs."""
    driver, now = sight.driver, sight.now
    typed = asked.text("q")
    if typed is not None:
        return _redirected(read_filter(typed))
    given = given_filter(asked)
    query = filter_query(asked, sight)
    limit = asked.whole("limit", PAGE_JOBS, MAX_PAGE_JOBS)
    try:
        cursor = asked.text("cursor")
        page = await find_page(
            driver, now, limit=limit, clock=sight.client.clock, cursor=cursor, order="-id", payloads=False, **query
        )
    except ValueError as error:
        if isinstance(error, TaskHarborError):
            raise
        raise BadQuery(str(error)) from error
    if asked.json:
        return Shown("jobs.html", "Jobs", {"jobs": await _summaries(sight, page.items), "cursor": page.cursor}, {})
    cap = cap_for(len(await driver.queues()))
    counts = await read_counts(driver, now, cap)
    waits = await read_waits(driver, now, page.items, sight.declared)
    queue = given.get("queue")
    chosen = counts if queue is None else {queue: counts.get(queue, {})}
    view = {
        "rows": [(without_content(info), word_for(info, waits)) for info in page.items],
        "cursor": page.cursor,
        "given": given,
        "typed": write_filter(given),
        "states": {state: _total(chosen.values(), state, cap) for state in json_output.STATES},
        "queues": sorted(counts),
        "is_first": asked.text("cursor") is None,
    }
    return Shown("jobs.html", "Jobs", None, view, ("jobs",))


def _total(counts: Iterable[Mapping[str, int]], state: str, cap: int) -> tuple[int, bool]:
    """How many jobs are in a state, and whether there are more."""
    numbers = [each.get(state, 0) for each in counts]
    return sum(numbers), any(number >= cap for number in numbers)


async def _summaries(sight: Sight, jobs: Iterable[JobInfo]) -> list[dict[str, Any]]:
    """Jobs for a script. One that has a reason is read whole, some at a time: only a payload that is known is masked,
    and a page of large payloads does not fit into memory."""
    found: list[dict[str, Any]] = []
    rows = list(jobs)
    for start in range(0, len(rows), WHOLE_AT_ONCE):
        some = rows[start : start + WHOLE_AT_ONCE]
        read = await asyncio.gather(*(_whole(sight, info) for info in some))
        found += [json_output.summary(info) for info in read if info is not None]
    return found


async def _whole(sight: Sight, info: JobInfo) -> JobInfo | None:
    """The job, with its payload if that is needed; None if it is gone meanwhile."""
    if not info.job.reason:
        return info
    return next(iter(await whole_records(sight.driver, sight.now, [info])), None)


def given_filter(asked: Asked) -> dict[str, str]:
    """The filter of an address, as text by name."""
    return {name: value for name in NAMES if (value := asked.text(name)) is not None}


def filter_arguments(asked: Asked, sight: Sight) -> dict[str, Any]:
    """The filter of an address, as arguments of `client.jobs`; BadQuery for what makes no sense."""
    arguments: dict[str, Any] = {}
    for name, value in given_filter(asked).items():
        if name in ("since", "until"):
            arguments[name] = asked.moment(name, sight.now)
        elif name == "state":
            arguments[name] = State(asked.one_of("state", json_output.STATES, value))
        else:
            arguments[name] = value
    return arguments


def filter_query(asked: Asked, sight: Sight) -> dict[str, Any]:
    """The same as arguments of `Driver.list`."""
    query = filter_arguments(asked, sight)
    if "flow" in query:
        query["flow_id"] = query.pop("flow")
    return query | error_query(query.pop("error")) if "error" in query else query


def _redirected(given: dict[str, str]) -> Shown:
    from urllib.parse import quote, urlencode

    if "id" in given:
        return Shown("", "", None, {}, redirect=f"/jobs/{quote(given['id'], safe='')}")
    return Shown("", "", None, {}, redirect=f"/jobs?{urlencode(given)}" if given else "/jobs")
