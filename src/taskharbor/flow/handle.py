"""Handles: one enqueued flow, seen from the code that enqueued it.

Waiting polls the job that ends the flow, and checks for a job that made the flow fail. So a failure is raised at once,
though everything behind the dead job stays blocked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from taskharbor.client import waiting
from taskharbor.client.handle import StoredHandle
from taskharbor.client.twins import both
from taskharbor.flow.summary import end_of, progress_of
from taskharbor.model.current_job import is_in_handler
from taskharbor.model.errors import JobNotFound
from taskharbor.model.job import FlowInfo, FlowStatus, JobInfo, State, flow_status
from taskharbor.model.times import Duration
from taskharbor.store import flows, jobs
from taskharbor.store.access import StoreCall, refuse_on_loop
from taskharbor.tasks.migration_hints import OF_FLOW_HANDLES, missing

if TYPE_CHECKING:
    from taskharbor.store.session import Store

R_co = TypeVar("R_co", covariant=True)

FIRST_WATCH_PAUSE_S = 0.1  # between two reads of the whole flow
EXTERNALS_PER_POLL = 20  # jobs outside of the flow that one poll inspects
POLLS_PER_WHOLE_READ = 30  # about every fifteen seconds, once the pauses are long


class FlowProgress(msgspec.Struct, frozen=True):
    """How many jobs of a flow are done, of how many it has by now. A flow that grows while it runs has more later."""

    done: int  # how many jobs are done
    total: int  # how many there are by now

    def __str__(self) -> str:
        return f"{self.done} of {self.total}"


class FlowHandle(StoredHandle[R_co]):
    """A flow by its id. `existed`: its last step met a known idempotency key, and its result is that job's."""

    __slots__ = ("_end", "_externals")

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

    if not TYPE_CHECKING:  # with it, a type checker would accept any attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("the handle of a workflow", name, OF_FLOW_HANDLES, "handle")

    @both
    async def status(self, call: StoreCall) -> FlowStatus:
        """How the flow stands: running, succeeded, failed or cancelled. Blocks for a read of the store."""
        found = await self._info(call, payloads=False)
        # It reads as succeeded if all jobs of the pages are done: only one reading of all of them proves that.
        return (await self._info(call)).status if found.status is FlowStatus.SUCCEEDED else found.status

    astatus = status.awaited

    @both
    async def progress(self, call: StoreCall) -> FlowProgress:
        """How many of its jobs are done, of how many; joins and failure steps are not counted."""
        return FlowProgress(*progress_of(await self._info(call, payloads=False)))

    aprogress = progress.awaited

    @both(polls=True)
    async def result(self, call: StoreCall, timeout: Duration | None = None) -> R_co:
        """Wait for the flow's end and return its result: what its last step returned, or the list of a group.

        Raises JobDead or JobCancelled as soon as the flow is failed or cancelled, TimeoutError (the flow goes on),
        or JobNotFound if its records are gone. In a handler it needs a timeout, unless the flow has ended. `timeout` is
        for the flow; each read of the store on the way has the time of any call, then it is BackendUnavailable.
        """
        return await self._value(call, *await self._ended(call, timeout))

    aresult = result.awaited

    @both(polls=True, instead="await handle.await_(...)")
    async def wait(self, call: StoreCall, timeout: Duration | None = None) -> FlowStatus:
        """Wait for the flow's end and return how it ended: succeeded, or as soon as it is failed or cancelled.

        Raises TimeoutError after `timeout` (the flow goes on), or JobNotFound if its records are gone. In a handler it
        needs a timeout, unless the flow has ended.
        """
        return flow_status([(await self._ended(call, timeout))[0].state])

    await_ = wait.awaited

    def watch(self, timeout: Duration | None = None) -> Iterator[FlowInfo]:
        """The flow now, and again on every change of a job of it; ends with the flow when it has ended.

        Each `FlowInfo` is a read of the whole flow, at most ten times a second. `timeout` is for all of it: then
        TimeoutError. In a handler it needs a timeout.
        """
        refuse_on_loop("handle.watch", "async for info in handle.awatch()")
        return iter(self._watched(timeout, "watch"))

    def awatch(self, timeout: Duration | None = None) -> AsyncIterator[FlowInfo]:
        """The same for `async for`."""
        return aiter(self._watched(timeout, "awatch"))

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

    @both
    async def info(self, call: StoreCall) -> FlowInfo:
        """The jobs of the flow and its edges, as they are now. Blocks for a read of the store."""
        return await self._info(call)

    ainfo = info.awaited

    async def _ended(self, call: StoreCall, timeout: Duration | None) -> tuple[JobInfo, str]:
        """The job that ended the flow, or that made it fail; and the id of the one that was to end it."""
        if self._end is None:
            flow = await self._info(call.again())
            end, externals = end_of(flow), flows.waits_for_externals(flow)
        else:
            end, externals = self._end, list(self._externals)
        poll = _Poll(self, end, externals, call.again)
        try:
            pauses = waiting.PollPauses(timeout, call.method, f"flow {self.id}", in_handler=call.in_handler)
            return await waiting.until_ended(call, poll, pauses), end
        except JobNotFound:
            raise self._gone() from None
        except waiting.WaitTimedOut as late:
            raise TimeoutError(await self._late(call, late)) from None

    async def _late(self, call: StoreCall, late: waiting.WaitTimedOut) -> str:
        """The text of the error when the caller's time is over, with advice."""
        flow = late.info if isinstance(late.info, FlowInfo) else await self._info(call.again())
        ready = next((node for node in flow.nodes if node.state is State.READY), flow.nodes[0])
        return f"flow {self.id} runs after {late}; {await waiting.why_not_ended(call, ready)}"

    def _watched(self, timeout: Duration | None, method: str) -> waiting.Watched[FlowInfo]:
        pauses = waiting.PollPauses(
            timeout, method, f"flow {self.id}", in_handler=is_in_handler(), first_s=FIRST_WATCH_PAUSE_S
        )
        watch = waiting.Watch(self._info, _seen, lambda flow: flow.status is not FlowStatus.RUNNING, pauses)
        return waiting.Watched(self._store, watch, self._late)

    async def _info(self, call: StoreCall, *, payloads: bool = True) -> FlowInfo:
        try:
            return await flows.flow(call, self.id, payloads=payloads)
        except JobNotFound:
            if self._end is None or not self.existed:
                raise self._gone() from None
        # Every step of it was known by its key: then it is the flow that they were first enqueued with.
        info = await jobs.job(call, self._end)
        if info.job.flow_id is not None:
            return await flows.flow(call, info.job.flow_id, payloads=payloads)
        at = info.job.finished_at or info.job.created_at
        return FlowInfo(self.id, flow_status([info.state]), info.job.created_at, at, (info,), ())

    def _gone(self) -> JobNotFound:
        return JobNotFound(
            f"flow {self.id} has no records: its transaction was rolled back, they were deleted, or it ended longer "
            "ago than the store keeps finished jobs (24 hours unless the DSN says retention=…)"
        )


def _seen(flow: FlowInfo) -> list[object]:
    """What a caller is shown again if it has changed."""
    return [flow.status, *((node.job.id, node.state, node.job.deliveries, node.job.note) for node in flow.nodes)]


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
