"""One job: its line of moments, why it waits, its executions, its workflow, and what it carries, hidden."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from taskharbor.dashboard.pages.content import PageContent, PageQuery
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.job_view import timeline_of, tries_of
from taskharbor.ops.operator import StoreReading
from taskharbor.store.diagnose import effects, reasons
from taskharbor.store.jobs import without_content
from taskharbor.store.redaction import HIDDEN
from taskharbor.store.situation import read_around_dead, read_situation

MAX_STRIP_JOBS = 40  # of its flow, beside it


async def job(reading: StoreReading, query: PageQuery) -> PageContent:
    """One job by its id, or by the beginning of one."""
    typed = query.path["id"]
    seen = await read_situation(
        reading.driver, typed, reading.now, place=reading.place, app=reading.harbor_name, declared=reading.declared
    )
    # Once a page, and in a thread: to look for the values of a large payload takes a while.
    info = await asyncio.to_thread(HIDDEN.masked, seen.info)
    found = reasons(replace(seen, info=info))
    payload, result = seen.info.job.payload, seen.info.job.result
    facts = json_output.whole(info, HIDDEN, reading.now)
    facts |= {"payload_bytes": len(payload), "result_bytes": None if result is None else len(result)}
    data = {**facts, "reasons": json_output.explanation(info, found)["reasons"]}
    if query.json:
        return PageContent("job.html", "Job", data, {})
    would = []
    if info.state is State.DLQ:
        app, declared = reading.harbor_name, reading.declared
        dead = await read_around_dead(reading.driver, info, reading.now, app=app, declared=declared)
        would = effects(dead)
    strip, more = await _strip(reading, info)
    view: dict[str, Any] = {
        "info": info,
        "facts": facts,
        "reasons": found,
        "tries": tries_of(info),
        "timeline": timeline_of(info, reading.now),
        "effects": would,
        "strip": tuple(map(without_content, strip)),
        "strip_more": more,
        "may_amend": info.state not in (State.DONE, State.INFLIGHT),
        "why": HIDDEN.why(info.job),
    }
    return PageContent("job.html", f"Job {info.job.id}", None, view, ("job", "jobs"), info.job.id)


async def _strip(reading: StoreReading, info: JobInfo) -> tuple[tuple[JobInfo, ...], bool]:
    """The first jobs of its flow."""
    if info.job.flow_id is None:
        return (), False
    page = await reading.driver.list(flow_id=info.job.flow_id, limit=MAX_STRIP_JOBS, now=reading.now, payloads=False)
    return page.items, page.cursor is not None
