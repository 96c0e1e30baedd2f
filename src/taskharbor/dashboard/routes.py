"""Every address of the dashboard: the pages, and what can be done on them. A test has a row for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from taskharbor.dashboard import actions
from taskharbor.dashboard.actions import ActionFunction
from taskharbor.dashboard.pages.about import about
from taskharbor.dashboard.pages.content import PageContent, PageQuery
from taskharbor.dashboard.pages.dead import dead
from taskharbor.dashboard.pages.flows import flow, flows
from taskharbor.dashboard.pages.job import job
from taskharbor.dashboard.pages.jobs import jobs
from taskharbor.dashboard.pages.operations import new_operation, operations
from taskharbor.dashboard.pages.overview import overview
from taskharbor.dashboard.pages.queues import queue, queues
from taskharbor.dashboard.pages.schedules import schedule, schedules
from taskharbor.dashboard.pages.workers import workers
from taskharbor.ops.access import Access, Permission
from taskharbor.ops.operator import StoreReading

TEN_THOUSAND_ROWS_S = 10.0


@dataclass(frozen=True)
class PageRoute:
    """A page. `nav`: the entry of the navigation that it belongs to."""

    path: str
    nav: str
    read: Callable[[StoreReading, PageQuery], Awaitable[PageContent]]
    timeout: float | None = None  # seconds, where reading takes longer than a page usually may


@dataclass(frozen=True)
class ActionRoute:
    """An action, by POST. `needs`: a person with none of these permissions is refused before the form is read; the
    action itself asks for the one that it takes."""

    path: str
    do: ActionFunction
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
ACTION_ROUTES = (
    ActionRoute("/queues/{queue:path}/pause", actions.pause, (Permission.PAUSE,)),
    ActionRoute("/queues/{queue:path}/resume", actions.resume, (Permission.RESUME,)),
    ActionRoute("/jobs/act", actions.act_on_jobs, _MANY),
    ActionRoute("/jobs/{id:path}/retry", actions.retry_job, (Permission.REQUEUE,)),
    ActionRoute("/jobs/{id:path}/cancel", actions.cancel_job, (Permission.CANCEL,)),
    ActionRoute("/jobs/{id:path}/delete", actions.delete_job, (Permission.DELETE,)),
    ActionRoute("/jobs/{id:path}/edit", actions.edit_job, (Permission.AMEND,)),
    ActionRoute("/jobs/{id:path}/reveal", actions.reveal_job, (Permission.REVEAL,)),
    ActionRoute("/jobs/{id:path}/download", actions.download_job, (Permission.REVEAL,)),
    ActionRoute("/operations", actions.begin_operation, _MANY),
    ActionRoute("/operations/{id:path}/stop", actions.stop_operation, (Permission.STOP,)),
    ActionRoute("/operations/{id:path}/resume", actions.resume_operation, (Permission.STOP,)),
    ActionRoute("/schedules/{name:path}/run", actions.run_schedule, (Permission.RUN,)),
    ActionRoute("/schedules/{name:path}/pause", actions.pause_schedule, (Permission.PAUSE,)),
    ActionRoute("/schedules/{name:path}/resume", actions.resume_schedule, (Permission.RESUME,)),
    ActionRoute("/schedules/{name:path}/edit", actions.edit_schedule, (Permission.AMEND,)),
    ActionRoute("/schedules/{name:path}/reset", actions.reset_schedule, (Permission.AMEND,)),
    ActionRoute("/schedules/{name:path}/delete", actions.delete_schedule, (Permission.DELETE,)),
    ActionRoute("/flows/{id:path}/cancel", actions.cancel_flow, (Permission.CANCEL,)),
    ActionRoute("/flows/{id:path}/requeue", actions.requeue_flow, (Permission.REQUEUE,)),
)
