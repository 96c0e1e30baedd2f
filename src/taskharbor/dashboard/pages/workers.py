"""The workers, and what each runs."""

from __future__ import annotations

from taskharbor.dashboard.pages.shown import Asked, Shown
from taskharbor.model.job import JobInfo, State
from taskharbor.ops import json_output
from taskharbor.ops.explain import SINCE_EVER
from taskharbor.ops.room import Sight

MAX_RUNNING = 200  # jobs that are shown with the worker that runs them
MAX_GONE = 20


async def workers(sight: Sight, asked: Asked) -> Shown:
    """All workers with a heartbeat in the last minute, and those that are gone."""
    driver, now = sight.driver, sight.now
    alive = await driver.workers(now)
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
    return Shown("workers.html", "Workers", data, view, ("workers", "jobs"))
