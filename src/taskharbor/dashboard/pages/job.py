"""One job: its line of moments, why it waits, its executions, its workflow, and what it carries, hidden."""

from __future__ import annotations

from typing import Any

from taskharbor.dashboard.pages.shown import Asked, Shown, without_content
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.dead_view import effects, read_dead
from taskharbor.ops.explain import read_situation, reasons
from taskharbor.ops.job_view import tries_of
from taskharbor.ops.redaction import HIDDEN
from taskharbor.ops.room import Sight
from taskharbor.ops.timeline import timeline_of

MAX_STRIP_JOBS = 40  # of its flow, beside it


async def job(sight: Sight, asked: Asked) -> Shown:
    """One job by its id, or by the beginning of one."""
    typed = asked.path["id"]
    seen = await read_situation(
        sight.driver, typed, sight.now, place=sight.place, app=sight.harbor_name, declared=sight.declared
    )
    info, found = seen.info, reasons(seen)
    facts = json_output.whole(info, HIDDEN, sight.now)
    data = {**facts, "reasons": json_output.explanation(info, found)["reasons"]}
    if asked.json:
        return Shown("job.html", "Job", data, {})
    would = effects(await read_dead(sight.driver, info.job.id, sight.now)) if info.state is State.DLQ else []
    strip, more = await _strip(sight, info)
    view: dict[str, Any] = {
        "info": without_content(info),
        "facts": facts,
        "reasons": found,
        "tries": tries_of(info),
        "timeline": timeline_of(info, sight.now),
        "effects": would,
        "strip": tuple(map(without_content, strip)),
        "strip_more": more,
        "may_amend": info.state not in (State.DONE, State.INFLIGHT),
        "why": HIDDEN.why(info.job),
    }
    return Shown("job.html", f"Job {info.job.id}", data, view, ("job", "jobs"), info.job.id)


async def _strip(sight: Sight, info: JobInfo) -> tuple[tuple[JobInfo, ...], bool]:
    """The first jobs of its flow."""
    if info.job.flow_id is None:
        return (), False
    page = await sight.driver.list(flow_id=info.job.flow_id, limit=MAX_STRIP_JOBS, now=sight.now, payloads=False)
    return page.items, page.cursor is not None
