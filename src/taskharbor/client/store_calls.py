"""What a harbor and a client offer to look at a store and to run it: jobs, flows, queues, counts, workers.

Everything here is for operators, so its parts are loaded by the first call: a program that only enqueues never pays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

from taskharbor.client.budget import Budget
from taskharbor.client.listing import at_least_one
from taskharbor.client.retries import with_retries
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.bounds import check_name
from taskharbor.model.job import FlowStatus, State, WorkerInfo

if TYPE_CHECKING:
    import builtins

    from taskharbor.client.audit import Audit
    from taskharbor.client.client import Client
    from taskharbor.client.flows import Flows
    from taskharbor.client.handle import JobHandle
    from taskharbor.client.jobs import Jobs
    from taskharbor.client.operation import Operation
    from taskharbor.client.queue_info import QueueInfo
    from taskharbor.client.schedules import Schedules
    from taskharbor.tasks.task import Task


class JobFilterArguments(TypedDict, total=False):
    """The options of `jobs`, which explains them, without `state`."""

    queue: str | None
    type: str | Task[..., Any] | None
    group: str | None
    flow: str | None
    error: str | builtins.type[BaseException] | None
    fingerprint: str | None
    since: datetime | None
    until: datetime | None
    newest: bool


PAUSE_IN_DOUBT = "The queue may or may not be paused; call again: that does no harm"
COUNTS_CAP_JOBS = 100_000


class StoreCalls:
    """Looking at a store and running it. `_called` is how errors name the object."""

    _called: ClassVar[str]

    @property
    def _client(self) -> Client:
        raise NotImplementedError

    # Jobs and flows ------------------------------------------------------------------------------------------

    def job(self, id: str) -> JobHandle[Any]:
        """The handle of a job by its id; reads nothing yet. `task.job(id)` is typed by the task."""
        return self._client.handle(id)

    def jobs(
        self,
        *,
        state: State | str | None = None,
        queue: str | None = None,
        type: str | Task[..., Any] | None = None,
        group: str | None = None,
        flow: str | None = None,
        error: str | builtins.type[BaseException] | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest: bool = False,
    ) -> Jobs:
        """Jobs by filter: a value to iterate, to count, to requeue, cancel or delete; reads nothing yet.

        Without options all jobs fit. They are listed by id, the oldest first.

        >>> from taskharbor import Harbor
        >>> harbor = Harbor("memory://")
        >>> harbor.jobs(state="dlq", queue="mail", newest=True)
        Jobs(state=<State.DLQ: 'dlq'>, queue='mail', newest=True)

        Options:
            state: "blocked", "scheduled", "ready", "inflight", "done", "dlq" or "cancelled".
            queue: The name of a queue.
            type: A task, or the name of one.
            group: A group key.
            flow: The id of a flow.
            error: The class of the last failure, or its name, such as "httpx.ConnectError".
            fingerprint: The fingerprint of the last failure: failures with the same one have the same cause.
            since: From this moment on. It is compared with the end of a job that has ended, else with its enqueueing.
            until: Before this moment, compared in the same way.
            newest: True: the newest first. Default: False.
        """
        from taskharbor.client.jobs import checked_jobs

        return checked_jobs(
            self._client,
            state=state,
            queue=queue,
            type=type,
            group=group,
            flow=flow,
            error=error,
            fingerprint=fingerprint,
            since=since,
            until=until,
            newest=newest,
        )

    def dead(self, **filter: Unpack[JobFilterArguments]) -> Jobs:
        """Dead jobs by filter: `jobs(state="dlq", …)`. The options are those of `jobs`, without `state`."""
        if "state" in filter:
            raise TypeError("dead: expected no state=, because it is 'dlq'; use jobs(state=…)")
        return self.jobs(state=State.DLQ, **filter)

    def operation(self, id: str) -> Operation:
        """A bulk operation by its id; reads nothing yet."""
        from taskharbor.client.operation import Operation

        check_name(id, "id")
        return Operation(self._client, id)

    def audit(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: str | None = None,
    ) -> Audit:
        """Who changed what, the newest first: a value to iterate, `for` or `async for`; reads nothing yet.

        Entries are kept for 90 days. `since` and `until` (exclusive) bound the moment of the action. `by` is the name
        that it was made with.
        """
        from taskharbor.client.audit import checked_audit

        return checked_audit(self._client, since=since, until=until, by=by)

    def flows(
        self,
        *,
        status: FlowStatus | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest: bool = False,
    ) -> Flows:
        """Flows by filter: a value to iterate, `for` or `async for`; reads nothing yet.

        `status`: "running", "succeeded", "failed" or "cancelled". `since` and `until` (exclusive) are compared with the
        enqueueing of a flow's first job. `newest`: the newest first. A `FlowInfo` of a listing has no nodes and edges;
        `flow(id)` reads them.
        """
        from taskharbor.client.flows import checked_flows

        return checked_flows(self._client, status=status, since=since, until=until, newest=newest)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store: to add some, to look at them, to edit, pause, run and delete them."""
        from taskharbor.client.schedules import Schedules

        return Schedules(self._client)

    # Counts, workers, queues -----------------------------------------------------------------------------------

    @both
    async def counts(self, budget: Budget, *, cap: int | None = COUNTS_CAP_JOBS) -> dict[str, dict[str, int]]:
        """How many jobs are in which state, by queue; zeros left out. Blocks for one read of the store.

        A number that reaches `cap` stands for "that many or more". With `cap=None` all are counted.
        """
        from taskharbor.client.queue_info import read_counts

        if cap is not None:
            at_least_one(cap, "cap")
        return await read_counts(self._client, cap, budget)

    acounts = counts.awaited

    @both
    async def workers(self, budget: Budget) -> list[WorkerInfo]:
        """The workers that sent a heartbeat in the last minute, in the order of their names."""
        return await with_retries(lambda driver: driver.workers(self._client.clock.now()), budget)

    aworkers = workers.awaited

    @both
    async def queues(self, budget: Budget) -> list[QueueInfo]:
        """The queues that hold a job or are paused, in the order of their names, with their counts.

        Two or three reads, and one more for each queue.
        """
        from taskharbor.client.queue_info import read_queues

        return await read_queues(self._client, budget)

    aqueues = queues.awaited

    @both
    async def pause(self, budget: Budget, queue: str, *, by: str | None = None) -> None:
        """Stop workers from taking jobs of a queue. What runs goes on; pausing twice does nothing.

        `by`: who does it, for the audit; else the user of this process.
        """
        await self._switch(budget, queue, by, lambda driver: driver.pause(queue))

    apause = pause.awaited

    @both
    async def resume(self, budget: Budget, queue: str, *, by: str | None = None) -> None:
        """Let workers take jobs of a queue again."""
        await self._switch(budget, queue, by, lambda driver: driver.resume(queue))

    aresume = resume.awaited

    @both
    async def is_paused(self, budget: Budget, queue: str) -> bool:
        """Whether a queue is paused."""
        check_name(queue, "queue")
        return await with_retries(lambda driver: driver.is_paused(queue), budget)

    ais_paused = is_paused.awaited

    async def _switch(
        self, budget: Budget, queue: str, by: str | None, act: Callable[[Driver], Awaitable[None]]
    ) -> None:
        from taskharbor.client.audit import audited

        check_name(queue, "queue")
        budget.doubt = lambda: PAUSE_IN_DOUBT
        await audited(self._client, budget.what, by, budget, lambda: with_retries(act, budget), target=queue)
