"""Bulk operations: `jobs.requeue(…)` and its neighbours make one, and this handle follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from taskharbor.client.jobs import Count
from taskharbor.client.twins import both
from taskharbor.drivers.base import Driver
from taskharbor.model.errors import BackendUnavailable, WrongState
from taskharbor.model.job import OPERATIONS_QUEUE, JobInfo
from taskharbor.model.times import Duration, duration
from taskharbor.store.access import StoreCall, refuse_on_loop
from taskharbor.store.bulk import operations
from taskharbor.store.bulk.operations import OperationProgress
from taskharbor.store.bulk.plan import OperationStatus
from taskharbor.store.bulk.runner import OperationRunner

if TYPE_CHECKING:
    from taskharbor.store.session import Store

POLL_S = 0.5
LONGEST_POLL_S = 5.0


class DryRun(msgspec.Struct, frozen=True):
    """What an operation would touch: how many jobs fit, some of them, and the moment at which the filter was frozen.

    Give `until=cut` to the same filter, and the operation acts on what was shown, less what changed since.
    """

    action: str  # requeue, cancel or delete
    count: Count  # how many jobs fit
    sample: list[JobInfo]  # some of them
    cut: datetime  # when the filter was frozen


class Operation:
    """One bulk operation, by its id. Workers carry it out, beside their jobs; `run` does so in this program."""

    __slots__ = ("_store", "id")

    _called = "operation"

    def __init__(self, store: Store, id: str) -> None:
        self._store = store
        self.id = id

    def __repr__(self) -> str:
        return f"Operation({self.id!r})"

    @both
    async def status(self, call: StoreCall) -> OperationStatus:
        """Whether it runs, or how it ended. JobNotFound if its slices are gone, a week after its end."""
        return (await operations.progress(call, self.id)).status

    astatus = status.awaited

    @both
    async def progress(self, call: StoreCall) -> OperationProgress:
        """How far it is. Blocks for one read of the store."""
        return await operations.progress(call, self.id)

    aprogress = progress.awaited

    @both
    async def stop(self, call: StoreCall, *, by: str | None = None) -> None:
        """Let it do no more. What it has not touched stays as it is; a slice that is under way may still end.

        `by`: who stops it, for the audit. One that has ended stays as it is.
        """
        await operations.stop(call, self.id, by)

    astop = stop.awaited

    @both(polls=True, instead="await operation.await_(...)")
    async def wait(self, call: StoreCall, timeout: Duration | None = None) -> OperationProgress:
        """Wait until it has ended, and return how; TimeoutError after `timeout`."""
        access, pause = call.access, 0.05
        seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        ends = None if seconds is None else access.time() + seconds
        while True:
            progress = await operations.progress(call.again(), self.id)
            if progress.status.ended:
                return progress
            left = pause if ends is None else min(pause, ends - access.time())
            if left <= 0:
                raise TimeoutError(f"operation {self.id} has not ended within {seconds:g} s; it goes on")
            await access.sleep(left)
            pause = min(pause * 1.5, 1.0)

    await_ = wait.awaited

    def run(self, *, on_progress: Callable[[OperationProgress], None] | None = None) -> OperationProgress:
        """Carry it out in this program, with whatever workers do of it, and return how it ended.

        Slices of other operations that are due are carried out on the way. If this program ends in the middle, workers
        go on, or `harbor.operation(id).run()` does. `on_progress`: a function that is called after each slice.
        """
        refuse_on_loop("operation.run")
        return self._store.portal.call(lambda: self.arun(on_progress=on_progress), "operation.run", None)

    async def arun(self, *, on_progress: Callable[[OperationProgress], None] | None = None) -> OperationProgress:
        """The same, awaited."""
        store, pause = self._store, POLL_S
        while True:
            driver: Driver = await store.awaited.driver(0)
            runner = OperationRunner(driver, store.clock, f"operation-{self.id}", store.observers)
            try:
                ran = await _to_its_end(runner.run_one())
            except BackendUnavailable as error:
                if error.lasting:
                    raise
                ran = False
            if not ran and await driver.is_paused(OPERATIONS_QUEUE):
                raise WrongState(f"the queue {OPERATIONS_QUEUE} is paused, so no operation goes on; resume it first")
            newest = await operations.newest_slice(store.call("operation"), self.id)
            progress = operations.progress_of(newest)
            if on_progress is not None:
                on_progress(progress)
            if progress.status.ended:
                return progress
            pause = 0.0 if ran else min(max(pause * 1.5, POLL_S), LONGEST_POLL_S)
            if pause:
                due = newest.job.run_at
                left = pause if due is None else max((due - store.clock.now()).total_seconds(), 0.01)
                await store.clock.sleep(min(pause, left))


async def _to_its_end(slice: Coroutine[Any, Any, bool]) -> bool:
    """Run a slice, also if the caller is cancelled meanwhile: its lease would keep others from it for a minute."""
    running = asyncio.ensure_future(slice)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        if not running.done():
            await asyncio.wait([running])
        if not running.cancelled():
            running.exception()
        raise
