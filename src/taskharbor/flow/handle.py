"""Handles: one enqueued flow, seen from the code that enqueued it.

Waiting polls the job that ends the flow, and checks for a job that made the flow fail. So a failure is raised at once,
though everything behind the dead job stays blocked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from taskharbor.client import waiting
from taskharbor.client.handle import dead
from taskharbor.client.twins import both
from taskharbor.flow.summary import end_of, progress_of
from taskharbor.model.errors import JobCancelled, JobNotFound
from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, State, flow_status
from taskharbor.model.times import Duration
from taskharbor.store import flows, jobs
from taskharbor.store.access import StoreCall

if TYPE_CHECKING:
    from taskharbor.store.session import Store

R_co = TypeVar("R_co", covariant=True)

EXTERNALS_PER_POLL = 20  # jobs outside of the flow that one poll inspects
POLLS_PER_WHOLE_READ = 30  # about every fifteen seconds, once the pauses are long


class FlowProgress(msgspec.Struct, frozen=True):
    """How many jobs of a flow are done, of how many it has by now. A flow that grows while it runs has more later."""

    done: int  # how many jobs are done
    total: int  # how many there are by now

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


class FlowHandle(Generic[R_co]):
    """A flow by its id. `existed`: its last step met a known idempotency key, and its result is that job's."""

    __slots__ = ("_end", "_externals", "_returns", "_store", "existed", "id")

    _called = "handle"

    def __init__(
        self,
        store: Store,
        id: str,
        end: str | None = None,
        existed: bool = False,
        returns: Any = Any,
        externals: tuple[str, ...] = (),
    ) -> None:
        self._store = store
        self._end = end
        self._externals = externals  # stored jobs that steps resolved to through their idempotency keys
        self._returns = returns
        self.id = id
        self.existed = existed

    def __repr__(self) -> str:
        return f"FlowHandle({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlowHandle) and other.id == self.id and other._store.is_same(self._store)

    def __hash__(self) -> int:
        return hash(self.id)

    @both
    async def status(self, call: StoreCall) -> FlowStatus:
        """How the flow stands: running, succeeded, failed or cancelled. Blocks for a read of the store."""
        return (await self._info(call)).status

    astatus = status.awaited

    @both
    async def progress(self, call: StoreCall) -> FlowProgress:
        """How many of its jobs are done, of how many; joins and failure steps are not counted."""
        return FlowProgress(*progress_of(await self._info(call)))

    aprogress = progress.awaited

    @both(polls=True)
    async def result(self, call: StoreCall, timeout: Duration | None = None) -> R_co:
        """Wait for the flow's end and return its result: what its last step returned, or the list of a group.

        Raises JobDead or JobCancelled as soon as the flow is failed or cancelled, TimeoutError (the flow goes on),
        or JobNotFound if its records are gone. In a handler it needs a timeout, unless the flow has ended. `timeout` is
        for the flow; each read of the store on the way has the time of any call, then it is BackendUnavailable.
        """
        if self._end is None:
            flow = await self._info(call.again())
            end, externals = end_of(flow), flows.waits_for_externals(flow)
        else:
            end, externals = self._end, list(self._externals)
        poll = _Poll(self, end, externals, call.again)
        try:
            pauses = waiting.PollPauses(timeout, call.method, f"flow {self.id}", in_handler=call.in_handler)
            info = await waiting.until_ended(call, poll, pauses)
        except JobNotFound:
            raise self._gone() from None
        except waiting.WaitTimedOut as late:
            unfinished = await self._ready(call.again()) or late.info
            advice = await waiting.why_not_ended(call, unfinished)
            raise TimeoutError(f"flow {self.id} runs after {late}; {advice}") from None
        job = info.job
        if info.state is State.DLQ:
            raise dead(job)
        if info.state is State.CANCELLED:
            raise JobCancelled(job.id, job.reason)
        # The job that took the last one's place returns what its own task says, which is not known here.
        value: R_co = await jobs.result(call.again(), job, self._returns if job.id == end else Any)
        return value

    aresult = result.awaited

    @both
    async def cancel(self, call: StoreCall) -> int:
        """Cancel what has not ended, also what is being spawned at this moment; returns how many jobs were cancelled.

        A running handler receives it with its next heartbeat.
        """
        return await call.change(lambda driver: driver.cancel_flow(self.id, call.now()), flows.CANCEL_IN_DOUBT)

    acancel = cancel.awaited

    @both
    async def requeue(self, call: StoreCall) -> int:
        """Bring the dead jobs of the flow back, with all their attempts; returns how many.

        What was done stays done: the flow goes on exactly where it failed.
        """
        return await call.change(
            lambda driver: flows.requeue_dead(driver, self.id, flows.Requeue(), call.now()), flows.REQUEUE_IN_DOUBT
        )

    arequeue = requeue.awaited

    async def ainfo(self) -> FlowInfo:
        """The jobs of the flow and its edges, as they are now."""
        return await self._info(self._store.call("info"))

    async def _ready(self, call: StoreCall) -> JobInfo | None:
        """A job of the flow that waits for a worker."""
        return next((node for node in (await self._info(call)).nodes if node.state is State.READY), None)

    async def _info(self, call: StoreCall) -> FlowInfo:
        try:
            return await flows.flow(call, self.id)
        except JobNotFound:
            if self._end is None or not self.existed:
                raise self._gone() from None
        # Every step of it was known by its key: then it is the flow that they were first enqueued with.
        info = await jobs.job(call, self._end)
        if info.job.flow_id is not None:
            return await flows.flow(call, info.job.flow_id)
        at = info.job.finished_at or info.job.created_at
        return FlowInfo(self.id, flow_status([info.state]), info.job.created_at, at, (info,), ())

    def _gone(self) -> JobNotFound:
        return JobNotFound(
            f"flow {self.id} has no records: its transaction was rolled back, they were deleted, or it ended longer "
            "ago than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
        )


class _Poll:
    """Reads how a flow stands, again and again, each time as cheaply as possible."""

    def __init__(self, handle: FlowHandle[Any], end: str, externals: list[str], again: Callable[[], StoreCall]) -> None:
        self._handle = handle
        self._end = end
        self._externals = externals
        self._again = again
        self._number = 0

    async def __call__(self) -> JobInfo:
        """The job that ends the flow, or the one that is to blame if it will never end."""
        self._number += 1
        if self._number % POLLS_PER_WHOLE_READ == 0:  # jobs spawned since then may wait for external ones, too
            self._externals = flows.waits_for_externals(await self._handle._info(self._again()))
        first = self._number * EXTERNALS_PER_POLL % max(len(self._externals), 1)
        some = (self._externals * 2)[first : first + min(EXTERNALS_PER_POLL, len(self._externals))]
        return await jobs.job_in_flow(self._again(), self._end, self._handle.id, some)
