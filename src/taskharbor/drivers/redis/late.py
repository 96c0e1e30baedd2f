"""Reserves that were given up because their node did not answer, though others did.

The node may grant their jobs all the same. Nobody would run these until their leases end, so the call goes on in the
background, and the next reserve of the same worker returns what it found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from taskharbor.drivers.redis.router import QueueGrants

Reserving = asyncio.Task[list[QueueGrants]]


class LateGrants:
    """Those of one client."""

    def __init__(self) -> None:
        self._under_way: set[Reserving] = set()
        self._found: list[tuple[str, QueueGrants]] = []  # by worker

    async def reserve(self, worker: str, call: Coroutine[Any, Any, list[QueueGrants]]) -> list[QueueGrants]:
        """Reserve. If that is given up, the result comes late."""
        task = asyncio.create_task(call, name="taskharbor-reserve")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._under_way.add(task)
            task.add_done_callback(partial(self._keep, worker))
            raise

    def _keep(self, worker: str, task: Reserving) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._found += [(worker, grants) for grants in task.result() if grants.jobs]

    def take(self, worker: str, queues: Sequence[str], limit: int, ending_after: int) -> list[QueueGrants]:
        """What came late, at most `limit` jobs whose leases end after a moment in ms; others are forgotten."""
        taken: list[QueueGrants] = []
        kept: list[tuple[str, QueueGrants]] = []
        for owner, grants in self._found:
            if grants.end <= ending_after:
                continue
            count = limit if owner == worker and grants.queue in queues else 0
            limit -= len(grants.jobs[:count])
            parts = grants.jobs[:count], grants.jobs[count:]
            taken += [grants._replace(arrival=None, jobs=jobs) for jobs in parts[:1] if jobs]
            kept += [(owner, grants._replace(jobs=jobs)) for jobs in parts[1:] if jobs]
        self._found = kept
        return taken

    async def close(self) -> None:
        """Give up what is under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
