"""Handles: one enqueued flow, seen from the code that asked for it.

Waiting looks at the job that ends the flow and for a job that made it fail, with growing pauses: so it is told of a
failure at once, though everything behind the dead job stays blocked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from taskharbor.client import polling
from taskharbor.client.external_jobs import waits_outside
from taskharbor.client.handle import dead
from taskharbor.flow.summary import end_of, progress_of
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.errors import JobCancelled, JobNotFound
from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, State, flow_status
from taskharbor.model.times import Duration

if TYPE_CHECKING:
    from taskharbor.client.budget import Budget
    from taskharbor.client.client import Client

R_co = TypeVar("R_co", covariant=True)

OUTSIDE_AT_ONCE = 20  # jobs outside of the flow that one look asks for
WHOLE_LOOK = 30  # which look reads the whole flow: about every fifteen seconds, once the pauses are long


class Progress(msgspec.Struct, frozen=True):
    """How many jobs of a flow are done, of how many it has by now. A flow that grows while it runs has more later."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


class FlowHandle(Generic[R_co]):
    """A flow by its id. `existed`: its last step met a known idempotency key, and its result is that job's."""

    __slots__ = ("_client", "_end", "_outside", "_returns", "existed", "id")

    def __init__(
        self,
        client: Client,
        id: str,
        end: str | None = None,
        existed: bool = False,
        returns: Any = Any,
        outside: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._end = end
        self._outside = outside  # jobs that steps of it were found to be by their keys
        self._returns = returns
        self.id = id
        self.existed = existed

    def __repr__(self) -> str:
        return f"FlowHandle({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowHandle) and other.id == self.id and other._client is self._client

    def __hash__(self) -> int:
        return hash(self.id)

    def status(self, *, call_timeout: Duration | None = None) -> FlowStatus:
        """How the flow stands: running, succeeded, failed or cancelled. Blocks for a look at the store."""
        return self._client.blocking(lambda: self.astatus(call_timeout=call_timeout), "handle.status", call_timeout)

    async def astatus(self, *, call_timeout: Duration | None = None) -> FlowStatus:
        """The same, awaited."""
        return (await self._info(self._client.budget(call_timeout, "status"))).status

    def progress(self, *, call_timeout: Duration | None = None) -> Progress:
        """How many of its jobs are done, of how many; joins and failure steps are not counted."""
        return self._client.blocking(lambda: self.aprogress(call_timeout=call_timeout), "handle.progress", call_timeout)

    async def aprogress(self, *, call_timeout: Duration | None = None) -> Progress:
        """The same, awaited."""
        return Progress(*progress_of(await self._info(self._client.budget(call_timeout, "progress"))))

    def result(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """Wait for the flow's end and answer its result: what its last step returned, or the list of a group.

        Raises JobDead or JobCancelled as soon as the flow is failed or cancelled, TimeoutError (the flow goes on),
        or JobNotFound if its records are gone. In a handler it needs a timeout, unless the flow has ended. `timeout` is
        for the flow; each look at the store on the way may take `call_timeout`, then it is BackendUnavailable.
        """
        here = is_in_handler()
        return self._client.portal.call(lambda: self._result(timeout, call_timeout, here), "handle.result")

    async def aresult(self, timeout: Duration | None = None, *, call_timeout: Duration | None = None) -> R_co:
        """The same, awaited."""
        return await self._result(timeout, call_timeout, is_in_handler())

    async def _result(self, timeout: Duration | None, call_timeout: Duration | None, in_handler: bool) -> R_co:
        def budget() -> Budget:
            return self._client.budget(call_timeout, "result")

        if self._end is None:
            flow = await self._info(budget())
            end, outside = end_of(flow), waits_outside(flow)
        else:
            end, outside = self._end, list(self._outside)
        look = _Look(self, end, outside, budget)
        try:
            info = await polling.until_ended(look, timeout, f"flow {self.id}", in_handler=in_handler)
        except JobNotFound:
            raise self._gone() from None
        except polling.Late as late:
            told = await polling.held_up(self._client, await self._ready(budget()) or late.info)
            raise TimeoutError(f"flow {self.id} runs after {late}; {told}") from None
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        # The job that took the last one's place returns what its own task says, which is not known here.
        value: R_co = await self._client.read(job, self._returns if job.id == end else Any, budget())
        return value

    async def _ready(self, budget: Budget) -> JobInfo | None:
        """A job of the flow that waits for a worker."""
        return next((node for node in (await self._info(budget)).nodes if node.state is State.READY), None)

    def cancel(self, *, call_timeout: Duration | None = None) -> int:
        """Cancel what has not ended, also what is being spawned at this moment; answers how many jobs were cancelled.

        A handler that runs learns it at its next heartbeat.
        """
        return self._client.blocking(lambda: self.acancel(call_timeout=call_timeout), "handle.cancel", call_timeout)

    async def acancel(self, *, call_timeout: Duration | None = None) -> int:
        """The same, awaited."""
        return await self._client.cancel_flow(self.id, call_timeout)

    def requeue(self, *, call_timeout: Duration | None = None) -> int:
        """Bring the dead jobs of the flow back, with all their attempts; answers how many.

        What was done stays done: the flow goes on exactly where it failed.
        """
        return self._client.blocking(lambda: self.arequeue(call_timeout=call_timeout), "handle.requeue", call_timeout)

    async def arequeue(self, *, call_timeout: Duration | None = None) -> int:
        """The same, awaited."""
        return await self._client.requeue_flow(self.id, call_timeout)

    async def ainfo(self, *, call_timeout: Duration | None = None) -> FlowInfo:
        """The jobs of the flow and its edges, as they read now."""
        return await self._info(self._client.budget(call_timeout, "info"))

    async def _info(self, budget: Budget) -> FlowInfo:
        try:
            return await self._client.look_at_flow(self.id, budget)
        except JobNotFound:
            if self._end is None or not self.existed:
                raise self._gone() from None
        # Every step of it was known by its key: then it is the flow that they were first enqueued with.
        info = await self._client.look(self._end, budget)
        if info.job.flow_id is not None:
            return await self._client.look_at_flow(info.job.flow_id, budget)
        at = info.job.finished_at or info.job.created_at
        return FlowInfo(self.id, flow_status([info.state]), info.job.created_at, at, (info,), ())

    def _gone(self) -> JobNotFound:
        return JobNotFound(
            f"flow {self.id} has no records: its transaction was rolled back, they were deleted, or it ended longer "
            "ago than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
        )


class _Look:
    """One look after the other at how a flow stands, each as cheap as it can be."""

    def __init__(self, handle: FlowHandle[Any], end: str, outside: list[str], budget: Callable[[], Budget]) -> None:
        self._handle = handle
        self._end = end
        self._outside = outside
        self._budget = budget
        self._number = 0

    async def __call__(self) -> JobInfo:
        """The job that ends the flow, or the one that is to blame if it will never end."""
        self._number += 1
        if self._number % WHOLE_LOOK == 0:  # what was brought into being since may wait for jobs outside, too
            self._outside = waits_outside(await self._handle._info(self._budget()))
        first = self._number * OUTSIDE_AT_ONCE % max(len(self._outside), 1)
        some = (self._outside * 2)[first : first + min(OUTSIDE_AT_ONCE, len(self._outside))]
        return await self._handle._client.look_in_flow(self._end, self._handle.id, some, self._budget())
