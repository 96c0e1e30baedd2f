"""All queues, and one of them."""

from __future__ import annotations

from taskharbor.dashboard.pages.content import PageContent, PageQuery, as_bad_query
from taskharbor.drivers.heads import read_heads
from taskharbor.model.bounds import check_name
from taskharbor.model.job import State
from taskharbor.ops import json_output
from taskharbor.ops.operator import StoreReading
from taskharbor.store.diagnose import word_for
from taskharbor.store.figures import DEFAULT_SPAN, SPANS, read_figures
from taskharbor.store.jobs import read_records, without_content
from taskharbor.store.queues import read_queue_rows
from taskharbor.store.situation import read_list_situation

NEXT_JOBS = 15


async def queues(reading: StoreReading, query: PageQuery) -> PageContent:
    """A page of queues by name."""
    after = query.text("cursor") or ""
    found = await read_queue_rows(reading.driver, reading.now, after=after)
    data = {"queues": [row.as_json() for row in found.rows], "cursor": found.cursor}
    view = {"found": found, "is_first": not after}
    return PageContent("queues.html", "Queues", data, view, ("jobs", "workers", "figures"))


async def queue(reading: StoreReading, query: PageQuery) -> PageContent:
    """One queue: its numbers, its charts, the jobs that come next, and who serves it."""
    name, driver, now = query.path["queue"], reading.driver, reading.now
    with as_bad_query():
        check_name(name, "queue")
    span = query.one_of("span", tuple(SPANS), DEFAULT_SPAN)
    found = await read_queue_rows(driver, now, only=name)
    figures = await reading.part("charts", read_figures(driver, now, span, name), None)
    head = (await read_heads(driver, [name], now, NEXT_JOBS))[name]
    coming = [without_content(info) for info in await read_records(driver, head.next, now)]
    running = await driver.list(queue=name, state=State.INFLIGHT, limit=NEXT_JOBS, now=now, payloads=False)
    waits = await read_list_situation(driver, now, coming, reading.declared, are_next=True)
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
    return PageContent("queue.html", f"Queue {name}", data, view, ("jobs", "workers", "figures"))
