"""A flow that was found by its id: all that the store returned about it, and its handle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from taskharbor.flow.handle import FlowHandle, FlowProgress
from taskharbor.flow.summary import durations_of, mermaid, progress_of
from taskharbor.model.job import FlowInfo
from taskharbor.model.times import Duration


class FlowRun(FlowInfo, frozen=True):
    """A flow as it was at one moment, with its jobs (`nodes`) and edges. `handle` reads the store again."""

    handle: FlowHandle[Any]

    @property
    def states(self) -> dict[str, str]:
        """The state of each job, by its id."""
        return {node.job.id: node.state.value for node in self.nodes}

    @property
    def durations(self) -> dict[str, timedelta | None]:
        """How long each job took from the moment at which it could start, by its id; None while it has not ended."""
        return durations_of(self)

    @property
    def progress(self) -> FlowProgress:
        """How many jobs were done, of how many."""
        return FlowProgress(*progress_of(self))

    def mermaid(self) -> str:
        """The graph as Mermaid text."""
        return mermaid(self)

    def result(self, timeout: Duration | None = None) -> Any:
        """The same as the handle's method, with its `timeout`."""
        return self.handle.result(timeout)

    async def aresult(self, timeout: Duration | None = None) -> Any:
        """The same as the handle's method."""
        return await self.handle.aresult(timeout)

    def requeue(self) -> int:
        """The same as the handle's method."""
        return self.handle.requeue()

    async def arequeue(self) -> int:
        """The same as the handle's method."""
        return await self.handle.arequeue()

    def cancel(self) -> int:
        """The same as the handle's method."""
        return self.handle.cancel()

    async def acancel(self) -> int:
        """The same as the handle's method."""
        return await self.handle.acancel()


def flow_run(info: FlowInfo, handle: FlowHandle[Any]) -> FlowRun:
    """A flow as the store returned it, with a handle."""
    return FlowRun(info.id, info.status, info.created_at, info.updated_at, info.nodes, info.edges, handle)
