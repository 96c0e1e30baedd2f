"""Notes of ids that were never stored, on a Cluster.

A client notes the queue of an id before it stores the job; one that dies in between leaves the note. It stops nobody,
and would stay for ever. So workers walk all notes, some each minute: an id without a record is marked, and forgotten if
it has none a day later. That is as long as a message that brings the job may be under way. Whoever notes the id again
takes the mark away, in one script: no note is lost of a job that is about to be stored.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.scripts import binary, load
from taskharbor.model.errors import BackendUnavailable

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_commands import ClusterCommands

BUCKETS = 16
LOOKED_AT = 500  # ids in a step, about
GRACE = 24 * 3600  # seconds


class ClusterLocations:
    """One client's walk."""

    def __init__(self, commands: ClusterCommands) -> None:
        self._commands = commands
        self._bucket = random.randrange(BUCKETS)  # not all workers the same ones
        self._number, self._cursor = 0, b"0"  # the next hash in it, and how far that was read

    @property
    def is_between(self) -> bool:
        """Whether a bucket is to be begun."""
        return not self._number and self._cursor == b"0"

    async def step(self, grace: int = GRACE) -> None:
        """Look at some notes; where a node is away, later."""
        try:
            await self._step(f"{{th:ids:{self._bucket}}}", grace)
        except BackendUnavailable:
            self._number, self._cursor = 0, b"0"
        if self.is_between:
            self._bucket = (self._bucket + 1) % BUCKETS

    async def _step(self, key: str, grace: int) -> None:
        commands = self._commands
        args = (key, self._number, binary(self._cursor), LOOKED_AT)
        found, self._number, self._cursor, any_marked = await commands.endpoint.run(
            load("scan_locations"), key[1:-1], args
        )
        asked: dict[str, list[str]] = {}
        for data, where in zip(found[::2], found[1::2], strict=True):
            id, queue = name_of(data), name_of(where)
            if id is not None and queue is not None:
                asked.setdefault(queue, []).append(id)
        there = await commands.where(asked)
        missing = [part for queue, ids in asked.items() for id in ids if id not in there for part in (id, queue)]
        if missing:
            await commands.register("unstored", key, [str(grace), *missing])
        if there and any_marked:
            await commands.register("stored", key, list(there))
