"""Every address of the dashboard: the pages, and what can be done on them. A test has a row for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from taskharbor.dashboard import acts
from taskharbor.dashboard.acts import Deed, Done
from taskharbor.dashboard.pages.about import about
from taskharbor.dashboard.pages.dead import dead
from taskharbor.dashboard.pages.flows import flow, flows
from taskharbor.dashboard.pages.job import job
from taskharbor.dashboard.pages.jobs import jobs
from taskharbor.dashboard.pages.operations import new_operation, operations
from taskharbor.dashboard.pages.overview import overview
from taskharbor.dashboard.pages.queues import queue, queues
from taskharbor.dashboard.pages.schedules import schedules
from taskharbor.dashboard.pages.shown import Asked, Shown
from taskharbor.dashboard.pages.workers import workers
from taskharbor.ops.room import Sight

TEN_THOUSAND_ROWS_S = 10.0


@dataclass(frozen=True)
class PageRoute:
    """A page. `nav`: the entry of the navigation that it belongs to."""

    path: str
    nav: str
    read: Callable[[Sight, Asked], Awaitable[Shown]]
    timeout: float | None = None  # seconds, where reading takes longer than a page usually may


@dataclass(frozen=True)
class ActRoute:
    """Something to do, by POST."""

    path: str
    do: Callable[[Deed], Awaitable[Done]]


# A name in an address may contain slashes, so the longer addresses come first.
PAGES = (
    PageRoute("/", "overview", overview),
    PageRoute("/queues", "queues", queues),
    PageRoute("/queues/{queue:path}", "queues", queue),
    PageRoute("/jobs", "jobs", jobs),
    PageRoute("/jobs/{id:path}", "jobs", job),
    PageRoute("/dead", "dead", dead, TEN_THOUSAND_ROWS_S),
    PageRoute("/flows", "flows", flows),
    PageRoute("/flows/{id:path}", "flows", flow),
    PageRoute("/schedules", "schedules", schedules),
    PageRoute("/workers", "workers", workers),
    PageRoute("/operations", "operations", operations),
    PageRoute("/operations/new", "operations", new_operation, TEN_THOUSAND_ROWS_S),
    PageRoute("/about", "about", about),
)

ACTS = (
    ActRoute("/queues/{queue:path}/pause", acts.pause),
    ActRoute("/queues/{queue:path}/resume", acts.resume),
    ActRoute("/jobs/act", acts.act_on_jobs),
    ActRoute("/jobs/{id:path}/retry", acts.retry_job),
    ActRoute("/jobs/{id:path}/cancel", acts.cancel_job),
    ActRoute("/jobs/{id:path}/delete", acts.delete_job),
    ActRoute("/jobs/{id:path}/edit", acts.edit_job),
    ActRoute("/jobs/{id:path}/reveal", acts.reveal_job),
    ActRoute("/jobs/{id:path}/download", acts.download_job),
    ActRoute("/operations", acts.begin_operation),
    ActRoute("/operations/{id:path}/stop", acts.stop_operation),
    ActRoute("/operations/{id:path}/resume", acts.resume_operation),
    ActRoute("/schedules/{name:path}/run", acts.run_schedule),
    ActRoute("/schedules/{name:path}/pause", acts.pause_schedule),
    ActRoute("/schedules/{name:path}/resume", acts.resume_schedule),
    ActRoute("/schedules/{name:path}/reset", acts.reset_schedule),
    ActRoute("/schedules/{name:path}/delete", acts.delete_schedule),
    ActRoute("/flows/{id:path}/cancel", acts.cancel_flow),
    ActRoute("/flows/{id:path}/requeue", acts.requeue_flow),
)
