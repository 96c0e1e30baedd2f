"""What a harbor offers to look at a store and to run it: jobs, flows, queues, counts, workers.

Everything here is for operators, so its parts are loaded by the first call: a program that only enqueues never pays.
"""

from __future__ import annotations

from contextvars import Token
from copy import copy
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, Unpack

from taskharbor.client.handle import JobHandle
from taskharbor.client.twins import both
from taskharbor.drivers.heads import read_counts
from taskharbor.model.bounds import check_name
from taskharbor.model.job import FlowStatus, State, WorkerInfo
from taskharbor.model.times import Duration
from taskharbor.model.validation import at_least_one
from taskharbor.store.access import StoreCall
from taskharbor.store.session import Store

if TYPE_CHECKING:
    import builtins

    from taskharbor.client.jobs import Jobs
    from taskharbor.client.listing import Audit, Flows
    from taskharbor.client.operation import Operation
    from taskharbor.client.schedules import Schedules
    from taskharbor.store.queues import QueueInfo
    from taskharbor.tasks.task import Task


class JobFilterArguments(TypedDict, total=False):
    """The options of `jobs`, which explains them, without `state`."""

    queue: str | None
    type: str | Task[..., Any] | None
    group: str | None
    flow: str | None
    error: str | builtins.type[BaseException] | None
    fingerprint: str | None
    since: datetime | timedelta | None
    until: datetime | timedelta | None
    newest: bool


COUNTS_CAP_JOBS = 100_000


class StoreFace:
    """What stands on a store. `_called` is how errors name the object.

    `with` and `async with` close it afterwards. Around one that `within` made, the block is what the time limit holds
    for.
    """

    _called: ClassVar[str]
    _store: Store
    _token: Token[Any] | None = None
    _is_limited = False  # whether `within` made it

    @classmethod
    def _of(cls, store: Store) -> Self:
        """The face of a store that is there already."""
        face = cls.__new__(cls)
        face._store = store
        return face

    def within(self, seconds: Duration) -> Self:
        """The same with another time limit for each call to the store, retries included: `client.within(3)`.

        As a `with` block it holds for every call that is made in the block: also of handles.
        """
        other = copy(self)
        other._store = self._store.within(seconds)
        other._is_limited = True
        return other

    def close(self) -> None:
        """Close what blocking calls opened, and end their thread if there is one. The next call opens it again."""
        self._store.close()

    async def aclose(self) -> None:
        """Close what this event loop opened, and what blocking calls did."""
        await self._store.aclose()

    def __enter__(self) -> Self:
        if self._is_limited:
            self._token = self._store.begin_limit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._store.end_limit(self._token)
        else:
            self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            self._store.end_limit(self._token)
        else:
            await self.aclose()


class StoreCalls(StoreFace):
    """Looking at a store and running it."""

    _called = "harbor"

    # Jobs and flows ------------------------------------------------------------------------------------------

    def job(self, id: str) -> JobHandle[Any]:
        """The handle of a job by its id; reads nothing yet. `task.job(id)` is typed by the task."""
        check_name(id, "id")
        return JobHandle(self._store, id, True)

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
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
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
            since: From this moment on; a timedelta is that long ago. It is compared with the end of a job that has
                ended, else with its enqueueing.
            until: Before this moment, compared in the same way.
            newest: True: the newest first. Default: False.
        """
        from taskharbor.client.jobs import checked_jobs

        return checked_jobs(
            self._store,
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
        return Operation(self._store, id)

    def audit(
        self,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        by: str | None = None,
    ) -> Audit:
        """Who changed what, the newest first: a value to iterate, `for` or `async for`; reads nothing yet.

        Entries are kept for 90 days. `since` and `until` (exclusive) bound the moment of the action; a timedelta is
        that long ago. `by` is the name that it was made with.
        """
        from taskharbor.client.listing import checked_audit

        return checked_audit(self._store, since=since, until=until, by=by)

    def flows(
        self,
        *,
        status: FlowStatus | str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        newest: bool = False,
    ) -> Flows:
        """Flows by filter: a value to iterate, `for` or `async for`; reads nothing yet.

        `status`: "running", "succeeded", "failed" or "cancelled". `since` and `until` (exclusive) are compared with the
        enqueueing of a flow's first job; a timedelta is that long ago. `newest`: the newest first. A `FlowInfo` of a
        listing has no nodes and edges; `flow(id)` reads them.
        """
        from taskharbor.client.listing import checked_flows

        return checked_flows(self._store, status=status, since=since, until=until, newest=newest)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the store: to add some, to look at them, to edit, pause, run and delete them."""
        from taskharbor.client.schedules import Schedules

        return Schedules(self._store)

    # Counts, workers, queues -----------------------------------------------------------------------------------

    @both
    async def counts(self, call: StoreCall, *, cap: int | None = COUNTS_CAP_JOBS) -> dict[str, dict[str, int]]:
        """How many jobs are in which state, by queue; zeros left out. Blocks for one read of the store.

        A number that reaches `cap` stands for "that many or more". With `cap=None` all are counted.
        """
        if cap is not None:
            at_least_one(cap, "cap")
        return await call.ask(lambda driver: read_counts(driver, call.now(), cap))

    acounts = counts.awaited

    @both
    async def workers(self, call: StoreCall) -> list[WorkerInfo]:
        """The workers that sent a heartbeat in the last minute, in the order of their names."""
        return await call.ask(lambda driver: driver.workers(call.now()))

    aworkers = workers.awaited

    @both
    async def queues(self, call: StoreCall) -> list[QueueInfo]:
        """The queues that hold a job or are paused, in the order of their names, with their counts.

        A count of 100,000 stands for "that many or more". Four reads, and one more for each queue.
        """
        from taskharbor.store.queues import read_queues

        return await call.ask(lambda driver: read_queues(driver, call.now()))

    aqueues = queues.awaited

    @both
    async def pause(self, call: StoreCall, queue: str, *, by: str | None = None) -> None:
        """Stop workers from taking jobs of a queue. What runs goes on; pausing twice does nothing.

        `by`: who does it, for the audit; else the user of this process.
        """
        from taskharbor.store.queues import pause

        await pause(call, queue, by)

    apause = pause.awaited

    @both
    async def resume(self, call: StoreCall, queue: str, *, by: str | None = None) -> None:
        """Let workers take jobs of a queue again."""
        from taskharbor.store.queues import resume

        await resume(call, queue, by)

    aresume = resume.awaited

    @both
    async def is_paused(self, call: StoreCall, queue: str) -> bool:
        """Whether a queue is paused."""
        check_name(queue, "queue")
        return await call.ask(lambda driver: driver.is_paused(queue))

    ais_paused = is_paused.awaited
