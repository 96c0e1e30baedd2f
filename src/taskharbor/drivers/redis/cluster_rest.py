"""Queues of a Cluster whose node does not answer: they rest, so that they cost the others nothing.

A call leaves out a queue that rests, unless it is about nothing else. Once a second one queue of each node is asked, in
the background; when the node answers, its queues are served again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
from taskharbor.drivers.redis.endpoint import AWAY, LOST
from taskharbor.model.errors import BackendUnavailable, DriverError

logger = logging.getLogger("taskharbor.drivers.redis")
ASK_EVERY_S = 1.0


class RestingQueues:
    """Those of one client."""

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        self._endpoint = endpoint
        self._reasons: dict[str, BackendUnavailable] = {}
        self._task: asyncio.Task[None] | None = None

    def reason(self, queue: str) -> BackendUnavailable | None:
        """Why a queue rests; None if it does not."""
        return self._reasons.get(queue)

    def awake(self, queues: Iterable[str]) -> list[str]:
        """Those that do not rest, or all of them if there are none."""
        given = list(queues)
        return [queue for queue in given if queue not in self._reasons] or given

    def failed(self, queue: str, error: BackendUnavailable) -> None:
        """A call on a queue failed, and others did not. It rests if its node is the reason."""
        if not isinstance(error.__cause__, (*LOST, *AWAY)) or queue in self._reasons:
            return
        self._reasons[queue] = error
        logger.warning("queue %s is left alone until its node answers: %s", queue, error)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_asking(), name="taskharbor-resting-queues")

    async def close(self) -> None:
        """Ask no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_asking(self) -> None:
        while self._reasons:
            await asyncio.sleep(ASK_EVERY_S)
            nodes: dict[object, list[str]] = {}
            for queue in self._reasons:
                nodes.setdefault(self._endpoint.address_of(f"{{{queue}}}"), []).append(queue)
            await asyncio.gather(*map(self._ask, nodes.values()))

    async def _ask(self, queues: list[str]) -> None:
        """Ask the node of these queues for the first one."""
        key = f"{{{queues[0]}}}:paused"
        try:
            await self._endpoint.ask("EXISTS", key, key=key)
        except BackendUnavailable:
            return
        except DriverError as error:  # an answer, too
            logger.debug("queue %s: %s", queues[0], error)
        for queue in queues:
            del self._reasons[queue]
            logger.info("queue %s: its node answers again", queue)
