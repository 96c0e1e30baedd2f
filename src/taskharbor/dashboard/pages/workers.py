"""The workers, and what each runs."""

from __future__ import annotations

from taskharbor.dashboard.pages.content import PageContent, PageQuery
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.operator import StoreReading
from taskharbor.store.situation import SINCE_EVER

MAX_RUNNING = 200  # jobs that are shown with the worker that runs them
MAX_GONE = 20


async def workers(reading: StoreReading, query: PageQuery) -> PageContent:
    """All workers with a heartbeat in the last minute, and those that are gone."""
    driver, now = reading.driver, reading.now
    alive = sorted(await driver.workers(now), key=lambda worker: -worker.stuck)
    known = await driver.workers(SINCE_EVER)
    names = {worker.worker for worker in alive}
    gone = sorted(
        (worker for worker in known if worker.worker not in names), key=lambda worker: worker.seen_at, reverse=True
    )
    page = await driver.list(state=State.INFLIGHT, limit=MAX_RUNNING, now=now, payloads=False)
    running: dict[str, list[JobInfo]] = {}
    for info in page.items:
        running.setdefault(info.worker, []).append(info)
    view = {"alive": alive, "gone": gone[:MAX_GONE], "running": running, "more": page.cursor is not None}
    data = {"workers": [json_output.worker(worker) for worker in alive]}
    return PageContent("workers.html", "Workers", data, view, ("workers", "jobs"))
