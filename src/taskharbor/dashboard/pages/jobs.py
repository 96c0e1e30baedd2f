"""Jobs by filter, a page at a time, the newest first; each that waits says why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from taskharbor.dashboard.pages.content import BadQuery, PageContent, PageQuery, as_bad_query
from taskharbor.dashboard.pages.filter_text import NAMES, read_filter, write_filter
from taskharbor.model.error_class import error_query
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.operator import StoreReading
from taskharbor.store.diagnose import word_for
from taskharbor.store.jobs import read_records, without_content
from taskharbor.store.pages import fill_page
from taskharbor.store.queues import read_all_queues
from taskharbor.store.situation import read_list_situation

PAGE_JOBS = 50
MAX_PAGE_JOBS = 500
WHOLE_AT_ONCE = 10  # jobs of a page with their payloads, for scripts


async def jobs(reading: StoreReading, query: PageQuery) -> PageContent:
    """A page of jobs."""
    driver, now = reading.driver, reading.now
    typed = query.text("q")
    if typed is not None:
        try:
            return _redirected(await _with_meaning(reading, read_filter(typed)))
        except BadQuery as error:
            if query.json:
                raise
            return _refused(typed, str(error))
    given = given_filter(query)
    filters = filter_query(query, reading)
    limit = query.whole("limit", PAGE_JOBS, MAX_PAGE_JOBS)
    with as_bad_query():
        cursor = query.text("cursor")
        page = await fill_page(
            driver.list, limit, reading.store.clock, now=now, cursor=cursor, order="-id", payloads=False, **filters
        )
    if query.json:
        return PageContent(
            "jobs.html", "Jobs", {"jobs": await _summaries(reading, page.items), "cursor": page.cursor}, {}
        )
    seen = await read_all_queues(driver, now)
    counts = seen.counts
    waits = await read_list_situation(driver, now, page.items, reading.declared)
    queue = given.get("queue")
    chosen = counts if queue is None else {queue: counts.get(queue, {})}
    view = {
        "rows": [(without_content(info), word_for(info, waits)) for info in page.items],
        "cursor": page.cursor,
        "given": given,
        "typed": write_filter(given),
        "states": {state: _total(chosen.values(), state, seen.cap) for state in json_output.STATES},
        "queues": sorted(counts),
        "is_first": query.text("cursor") is None,
        "problem_with_filter": "",
    }
    return PageContent("jobs.html", "Jobs", None, view, ("jobs",))


def _total(counts: Iterable[Mapping[str, int]], state: str, cap: int) -> tuple[int, bool]:
    """How many jobs are in a state, and whether there are more."""
    numbers = [each.get(state, 0) for each in counts]
    return sum(numbers), any(number >= cap for number in numbers)


async def _summaries(reading: StoreReading, jobs: Iterable[JobInfo]) -> list[dict[str, Any]]:
    """Jobs for a script. One that has a reason is read whole, some at a time: only a payload that is known is masked,
    and a page of large payloads does not fit into memory."""
    found: list[dict[str, Any]] = []
    rows = list(jobs)
    for start in range(0, len(rows), WHOLE_AT_ONCE):
        some = rows[start : start + WHOLE_AT_ONCE]
        read = await asyncio.gather(*(_whole(reading, info) for info in some))
        found += await asyncio.to_thread(_masked, [info for info in read if info is not None])
    return found


def _masked(jobs: list[JobInfo]) -> list[dict[str, Any]]:
    """In a thread: to look for the values of a large payload takes a while."""
    return [json_output.summary(info) for info in jobs]


async def _whole(reading: StoreReading, info: JobInfo) -> JobInfo | None:
    """The job, with its payload if that is needed; None if it is gone meanwhile."""
    if not info.job.reason:
        return info
    return next(iter(await read_records(reading.driver, [info.job.id], reading.now)), None)


def given_filter(query: PageQuery) -> dict[str, str]:
    """The filter of an address, as text by name."""
    return {name: value for name in NAMES if (value := query.text(name)) is not None}


def filter_arguments(query: PageQuery, reading: StoreReading) -> dict[str, Any]:
    """The filter of an address, as arguments of `harbor.jobs`; BadQuery for what makes no sense."""
    arguments: dict[str, Any] = {}
    for name, value in given_filter(query).items():
        if name in ("since", "until"):
            arguments[name] = query.moment(name, reading.now)
        elif name == "state":
            arguments[name] = State(query.one_of("state", json_output.STATES, value))
        else:
            arguments[name] = value
    return arguments


def filter_query(query: PageQuery, reading: StoreReading) -> dict[str, Any]:
    """The same as arguments of `Driver.list`."""
    filters = filter_arguments(query, reading)
    if "flow" in filters:
        filters["flow_id"] = filters.pop("flow")
    return filters | error_query(filters.pop("error")) if "error" in filters else filters


async def _with_meaning(reading: StoreReading, given: dict[str, str]) -> dict[str, str]:
    """The filter, with what a word without a name means: the first of type, error and queue that has a job."""
    if "word" not in given:
        return given
    word = given.pop("word")
    for name in ("type", "error", "queue"):
        with as_bad_query():
            wanted: dict[str, Any] = error_query(word) if name == "error" else {name: word}
            page = await reading.driver.list(now=reading.now, order="-id", limit=1, payloads=False, **wanted)
        if page.items:
            return {name: word, **given}
    return {"type": word, **given}


def _refused(typed: str, problem: str) -> PageContent:
    """The page with what was typed, and what is wrong with it."""
    view: dict[str, Any] = {
        "rows": [],
        "cursor": None,
        "given": {},
        "typed": typed,
        "states": {},
        "queues": [],
        "is_first": True,
        "problem_with_filter": problem,
    }
    return PageContent("jobs.html", "Jobs", None, view, status=400)


def _redirected(given: dict[str, str]) -> PageContent:
    from urllib.parse import quote, urlencode

    if "id" in given:
        return PageContent("", "", None, {}, redirect=f"/jobs/{quote(given['id'], safe='')}")
    return PageContent("", "", None, {}, redirect=f"/jobs?{urlencode(given)}" if given else "/jobs")
