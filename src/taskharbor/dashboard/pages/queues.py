"""All queues, and one of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taskharbor.dashboard.pages.shown import Asked, BadQuery, Shown, without_content
from taskharbor.drivers.base import Driver
from taskharbor.drivers.heads import read_heads
from taskharbor.model.bounds import check_name
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.figures_view import DEFAULT_SPAN, SPANS, read_figures
from taskharbor.ops.queue_rows import read_queue_rows
from taskharbor.ops.room import Sight
from taskharbor.ops.waiting import read_waits, word_for

NEXT_JOBS = 15


async def queues(sight: Sight, asked: Asked) -> Shown:
    """A page of queues by name."""
    after = asked.text("cursor") or ""
    found = await read_queue_rows(sight.driver, sight.now, after=after)
    data = {"queues": [row.as_json() for row in found.rows], "cursor": found.cursor}
    view = {"found": found, "is_first": not after}
    return Shown("queues.html", "Queues", data, view, ("jobs", "workers", "figures"))


async def queue(sight: Sight, asked: Asked) -> Shown:
    """One queue: its numbers, its charts, the jobs that come next, and who serves it."""
    name, driver, now = asked.path["queue"], sight.driver, sight.now
    try:
        check_name(name, "queue")
    except ValueError as error:
        raise BadQuery(str(error)) from error
    span = asked.one_of("span", tuple(SPANS), DEFAULT_SPAN)
    found = await read_queue_rows(driver, now, only=name)
    figures = await read_figures(driver, now, span, name)
    head = (await read_heads(driver, [name], now, NEXT_JOBS))[name]
    coming = await _jobs(driver, head.next, now)
    running = await driver.list(queue=name, state=State.INFLIGHT, limit=NEXT_JOBS, now=now, payloads=False)
    waits = await read_waits(driver, now, coming, sight.declared, are_next=True)
    serving = [worker for worker in found.workers if name in worker.queues]
    data = {**found.rows[0].as_json(), "serving": [json_output.worker(worker) for worker in serving]}
    view = {
        "row": found.rows[0],
        "found": found,
        "figures": figures,
        "span": span,
        "spans": tuple(SPANS),
        "coming": [(info, word_for(info, waits)) for info in coming],
        "next_known": head.next_known,
        "running": [(info, None) for info in running.items],
        "serving": serving,
    }
    return Shown("queue.html", f"Queue {name}", data, view, ("jobs", "workers", "figures"))


async def _jobs(driver: Driver, ids: Sequence[str], now: datetime) -> list[JobInfo]:
    """These jobs, in their order, that are still there, without what must not be kept."""
    found = []
    for id in ids:
        try:
            found.append(without_content(await driver.inspect(id, now)))
        except JobNotFound:  # it ended and was forgotten meanwhile
            continue
    return found
