"""Locations of ids that were never stored, on a Cluster.

A client stores the location of an id (its queue) before it stores the job. If it dies in between, the location stays:
it does no harm, but would stay for ever. So workers walk all locations, some each minute. An id without a record is
marked, and its location forgotten if it has none a day later: a message that brings the job may be under way for that
long. A client that claims the id again removes the mark, in one script, so no location is lost of a job that is about
to be stored.
"""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.script_args import ScanLocationsArgs
from taskharbor.drivers.redis.scripts import binary
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_router import ClusterRouter

BUCKETS = 16
STEP_IDS = 500  # in a step, about
GRACE_S = 24 * 3600


def bucket(id: str) -> str:
    """The key that stores the location of an id."""
    return f"{{th:ids:{zlib.crc32(id.encode()) % BUCKETS}}}"


class ClusterLocations:
    """One client's walk over the stored locations."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
        self._bucket = random.randrange(BUCKETS)  # not all workers the same ones
        self._number, self._cursor = 0, b"0"  # the next hash in it, and how far that was read

    @property
    def is_between(self) -> bool:
        """Whether a bucket is to be begun."""
        return not self._number and self._cursor == b"0"

    async def step(self, grace_s: int = GRACE_S) -> None:
        """Check some locations; where a node is away, later."""
        try:
            await self._step(f"{{th:ids:{self._bucket}}}", grace_s)
        except BackendUnavailable:
            self._number, self._cursor = 0, b"0"
        if self.is_between:
            self._bucket = (self._bucket + 1) % BUCKETS

    async def _step(self, key: str, grace_s: int) -> None:
        router = self._router
        args = ScanLocationsArgs(
            home=key[1:-1], at=key, hash_number=self._number, cursor=binary(self._cursor), count=STEP_IDS
        )
        found, self._number, self._cursor, any_marked = await router.endpoint.run(args)
        asked: dict[str, list[str]] = {}
        for data, where in zip(found[::2], found[1::2], strict=True):
            id, queue = name_of(data), name_of(where)
            if id is not None and queue is not None:
                asked.setdefault(queue, []).append(id)
        there = await router.check_queues(asked)
        missing = [part for queue, ids in asked.items() for id in ids if id not in there for part in (id, queue)]
        if missing:
            await router.register("unstored", key, [str(grace_s), *missing])
        if there and any_marked:
            await router.register("stored", key, list(there))
