"""What the calls of the driver work with: the endpoint that runs scripts, and the router that knows what one reaches.

The verbs lie beside it (enqueue.py, reserve.py, leases.py, settle.py, admin.py, flows.py), written once for one server
and for a Cluster. Times are milliseconds there, and jobs were checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from taskharbor.drivers.redis.late import LateGrants
from taskharbor.drivers.redis.records import can_be_queue, edges_of
from taskharbor.drivers.redis.router import Router, sliced
from taskharbor.drivers.redis.scripts import ScriptCall
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.drivers.redis.endpoint import Endpoint

T = TypeVar("T")
MAX_KNOWN_EDGES = 10_000
SLOW_CALLS = 20  # for how many calls the plain script is not tried, after one that it could not do


class KnownEdges:
    """The queues of jobs on which others depend, as the records of those name them. They are known although the stored
    location of a job is lost: see `JobReader.find`."""

    def __init__(self) -> None:
        self._queues: dict[str, str] = {}

    def note(self, edges: bytes | None) -> None:
        """The edges of a record that was read."""
        if edges:
            if len(self._queues) > MAX_KNOWN_EDGES:
                self._queues.clear()
            self._queues.update((id, queue) for id, queue in edges_of(edges) if can_be_queue(queue))

    def of(self, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Those of the ids whose queues are known, with their queues."""
        return [(id, self._queues[id]) for id in ids if id in self._queues]


class RedisStore:
    """One driver's way to its jobs."""

    def __init__(self, endpoint: Endpoint, skipped: dict[str, int] | None = None) -> None:
        self.endpoint = endpoint
        self.router = _router(endpoint)
        self.edges = KnownEdges()
        self.late = LateGrants()
        self.tidied_at: datetime | None = None  # when this client last forgot workers that are gone
        # verb → for how many calls its plain script is not tried
        self._skipped: dict[str, int] = {} if skipped is None else skipped

    @property
    def run(self) -> Callable[..., Awaitable[Any]]:
        """Run a script: see `Endpoint.run`."""
        return self.endpoint.run

    async def run_for_each(
        self,
        items: Sequence[T],
        queues: Sequence[str],
        size: int,
        args: Callable[[str, list[T]], ScriptCall],
        *,
        partly: bool = False,
    ) -> list[Any]:
        """Run a script on items of these queues: those that it reaches, `size` at a time, all parts at once. Returns
        what the script returned for each item. `partly`: BackendUnavailable for items that cannot be reached, unless
        that is all of them; else it is raised."""
        parts = [
            (home, list(some)) for home, positions in self.router.by_home(queues) for some in sliced(positions, size)
        ]
        calls = [(home, partial(self.run, args(home, [items[position] for position in some]))) for home, some in parts]
        found: dict[int, Any] = {}
        for (_, some), replies in zip(parts, await self.router.each(calls), strict=True):
            if not isinstance(replies, BackendUnavailable):
                found |= zip(some, replies, strict=True)
            elif partly:
                found |= dict.fromkeys(some, replies)
            else:
                raise replies
        return [found[position] for position in range(len(items))]

    async def each_home(
        self, queues: Sequence[str], call: Callable[[str, Sequence[int]], Awaitable[Sequence[T]]]
    ) -> list[T | BackendUnavailable]:
        """Call with the positions of the queues of each home; returns for each queue what the call returned for it, or
        why it cannot be reached. Raises if none can be."""
        parts = list(self.router.by_home(queues))
        replies = await self.router.each([(home, partial(call, home, positions)) for home, positions in parts])
        found: dict[int, T | BackendUnavailable] = {}
        for (_, positions), reply in zip(parts, replies, strict=True):
            if isinstance(reply, BackendUnavailable):
                found |= dict.fromkeys(positions, reply)
            else:
                found |= dict(zip(positions, reply, strict=True))
        return [found[position] for position in range(len(queues))]

    @property
    def max_payload(self) -> int:
        return self.endpoint.options.max_payload

    def try_plain(self, verb: str) -> bool:
        """Whether the script for plain jobs is worth trying: not for a while after it could not do it all."""
        left = self._skipped.get(verb, 0)
        if left:
            self._skipped[verb] = left - 1
        return not left

    def skip_plain(self, verb: str, calls: int = SLOW_CALLS) -> None:
        self._skipped[verb] = calls

    async def clock(self) -> int:
        """The server's time in ms, for calls of the contract that are given none. Only bookkeeping depends on it: when
        a key was last used, how old a message is."""
        seconds, micros = await self.endpoint.time()
        return seconds * 1000 + micros // 1000


def _router(endpoint: Endpoint) -> Router:
    if not endpoint.cluster:
        return Router(endpoint)
    from taskharbor.drivers.redis.cluster_endpoint import ClusterEndpoint
    from taskharbor.drivers.redis.cluster_router import ClusterRouter

    assert isinstance(endpoint, ClusterEndpoint)
    return ClusterRouter(endpoint)
