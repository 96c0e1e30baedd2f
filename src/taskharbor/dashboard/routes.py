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
from taskharbor.dashboard.pages.schedules import schedule, schedules
from taskharbor.dashboard.pages.shown import Asked, Shown
from taskharbor.dashboard.pages.workers import workers
from taskharbor.ops.access import Access, Permission
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
    """An action, by POST. `needs`: a person with none of these permissions is refused before the form is read; the
    action itself asks for the one that it takes."""

    path: str
    do: Callable[[Deed], Awaitable[Done]]
    needs: tuple[Permission, ...]

    def check(self, access: Access) -> None:
        """AccessDenied for a person who may not do this, whatever the form says."""
        if not any(access.allows(each) for each in self.needs):
            access.check(self.needs[0])


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
    PageRoute("/schedules/{name:path}", "schedules", schedule),
    PageRoute("/workers", "workers", workers),
    PageRoute("/operations", "operations", operations),
    PageRoute("/operations/new", "operations", new_operation, TEN_THOUSAND_ROWS_S),
    PageRoute("/about", "about", about),
)

_MANY = (Permission.REQUEUE, Permission.CANCEL, Permission.DELETE)
ACTS = (
    ActRoute("/queues/{queue:path}/pause", acts.pause, (Permission.PAUSE,)),
    ActRoute("/queues/{queue:path}/resume", acts.resume, (Permission.RESUME,)),
    ActRoute("/jobs/act", acts.act_on_jobs, _MANY),
    ActRoute("/jobs/{id:path}/retry", acts.retry_job, (Permission.REQUEUE,)),
    ActRoute("/jobs/{id:path}/cancel", acts.cancel_job, (Permission.CANCEL,)),
    ActRoute("/jobs/{id:path}/delete", acts.delete_job, (Permission.DELETE,)),
    ActRoute("/jobs/{id:path}/edit", acts.edit_job, (Permission.AMEND,)),
    ActRoute("/jobs/{id:path}/reveal", acts.reveal_job, (Permission.REVEAL,)),
    ActRoute("/jobs/{id:path}/download", acts.download_job, (Permission.REVEAL,)),
    ActRoute("/operations", acts.begin_operation, _MANY),
    ActRoute("/operations/{id:path}/stop", acts.stop_operation, (Permission.STOP,)),
    ActRoute("/operations/{id:path}/resume", acts.resume_operation, (Permission.STOP,)),
    ActRoute("/schedules/{name:path}/run", acts.run_schedule, (Permission.RUN,)),
    ActRoute("/schedules/{name:path}/pause", acts.pause_schedule, (Permission.PAUSE,)),
    ActRoute("/schedules/{name:path}/resume", acts.resume_schedule, (Permission.RESUME,)),
    ActRoute("/schedules/{name:path}/edit", acts.edit_schedule, (Permission.AMEND,)),
    ActRoute("/schedules/{name:path}/reset", acts.reset_schedule, (Permission.AMEND,)),
    ActRoute("/schedules/{name:path}/delete", acts.delete_schedule, (Permission.DELETE,)),
    ActRoute("/flows/{id:path}/cancel", acts.cancel_flow, (Permission.CANCEL,)),
    ActRoute("/flows/{id:path}/requeue", acts.requeue_flow, (Permission.REQUEUE,)),
)
