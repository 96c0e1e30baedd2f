"""Keys of a Cluster that belong to no queue: flows, and locations of ids. lua/cluster_registry.lua writes them.

Which queues have jobs of a flow, and whether it is cancelled, is in a key of the flow's own, `{th:flow:<id>}`, which no
script of a queue reaches.

A call names its queues there before it stores anything (`enter`) and confirms them afterwards (`confirm`): a queue
without a record of the flow leaves, and the key is deleted with the last one. A client that removes an empty queue may
meet a call that has entered it and not yet stored. That call enters it again when it confirms, and then sees a
cancellation that passed its jobs by.

The flag has a copy in each queue, for calls that entered before the flow was cancelled and store afterwards. It carries
the flow's generation, which changes when the flow is forgotten: what is left of an old flow stops no new one.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.redis.flows import cancel_part
from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.slices import DoneSoFar
from taskharbor.model.errors import BackendUnavailable
from taskharbor.model.job import JobRecord

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_router import ClusterRouter
    from taskharbor.drivers.redis.router import CancelIn


class FlowEntry(NamedTuple):
    """What a call learned of a flow when it entered it."""

    generation: str
    cancelled: bool


def flow_key(flow: str) -> str:
    return f"{{th:flow:{flow}}}"


class ClusterFlows:
    """One client's access to the keys of flows."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    async def _register(self, operation: str, flow: str, *rest: str) -> Any:
        return await self._router.register(operation, flow_key(flow), rest)

    async def enter(self, jobs: Iterable[JobRecord]) -> dict[str, FlowEntry]:
        """Name the queues of the flows that these jobs belong to."""
        named = _queues_by_flow(jobs)
        replies = await self._router.endpoint.gather(
            [self._register("enter", flow, *queues) for flow, queues in named.items()]
        )
        return {flow: FlowEntry(reply[0].decode(), bool(reply[1])) for flow, reply in zip(named, replies, strict=True)}

    async def confirm(self, jobs: Iterable[JobRecord], entered: dict[str, FlowEntry], now: int) -> None:
        """After a call: keep the queues that have a record of the flow, and let the others leave."""
        for flow, queues in _queues_by_flow(jobs).items():
            there = await self._with_records(flow, queues)
            if there:
                before = entered.get(flow)
                if await self.stored(flow, there, now, was_cancelled=before is not None and before.cancelled):
                    await self._router.outbox.deliver(there)
            if len(there) < len(queues):
                await self.tidy(flow)

    async def stored(self, flow: str, queues: Sequence[str], now: int, *, was_cancelled: bool = False) -> bool:
        """These queues have records of the flow. If it was cancelled meanwhile, their jobs may have been missed: they
        are cancelled now. Returns whether that posted messages, which the caller has to deliver."""
        generation, cancelled = await self._register("enter", flow, *queues)
        if not cancelled or was_cancelled:
            return False
        for queue in queues:
            await cancel_part(self._router.endpoint, flow, now, DoneSoFar(), queue, [queue], generation.decode())
        return True

    async def tidy(self, flow: str) -> None:
        """Let the queues leave that have no record of the flow; with the last one the flow is forgotten."""
        queues = await self.queues(flow)
        there = set(await self._with_records(flow, queues))
        for queue in queues:
            if queue not in there:
                await self._router.endpoint.ask("DEL", f"{{{queue}}}:th:flow!:{flow}", key=f"{{{queue}}}")
                await self._register("left", flow, queue)
                if await self._with_records(flow, [queue]):
                    await self._register("enter", flow, queue)

    async def _with_records(self, flow: str, queues: Sequence[str]) -> list[str]:
        endpoint = self._router.endpoint
        asked = [endpoint.ask("EXISTS", f"{{{queue}}}:th:flow:{flow}", key=f"{{{queue}}}") for queue in queues]
        return [queue for queue, there in zip(queues, await endpoint.gather(asked), strict=True) if there]

    async def queues(self, flow: str) -> list[str]:
        fields = await self._router.endpoint.ask("HKEYS", flow_key(flow), key=flow_key(flow))
        return [field[1:].decode() for field in fields if field.startswith(b"=")]

    async def cancel(self, flow: str, cancel_in: CancelIn) -> None:
        """Cancel what is not terminal."""
        flagged = await self._register("cancel", flow)
        if not flagged:
            return
        generation, *queues = [text.decode() for text in flagged]
        have_records = [await cancel_in(queue, [queue], generation) for queue in queues]
        await self._router.outbox.deliver(queues)
        if not any(have_records):
            await self.tidy(flow)

    async def resume(self, flow: str) -> None:
        """Take the flag away, here and in the queues."""
        endpoint = self._router.endpoint
        await endpoint.ask("HDEL", flow_key(flow), "!", key=flow_key(flow))
        for queue in await self.queues(flow):
            await endpoint.ask("DEL", f"{{{queue}}}:th:flow!:{flow}", key=f"{{{queue}}}")

    async def is_open(self, flow: str) -> bool:
        """Whether a job of the flow is neither done nor cancelled."""
        for queue in await self.queues(flow):
            if await self._router.endpoint.ask("EXISTS", f"{{{queue}}}:th:flow+:{flow}", key=f"{{{queue}}}"):
                return True
        return False


def _queues_by_flow(jobs: Iterable[JobRecord]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for job in jobs:
        if job.flow_id is not None:
            found.setdefault(job.flow_id, {})[job.queue] = None
    return {flow: list(queues) for flow, queues in found.items()}


# Locations of ids that were never stored. A client stores the location of an id (its queue) before it stores the job.
# If it dies in between, the location stays: it does no harm, but would stay for ever. So workers walk all locations,
# some each minute. An id without a record is marked, and its location forgotten if it has none a day later: a message
# that brings the job may be under way for that long. A client that claims the id again removes the mark, in one script,
# so no location is lost of a job that is about to be stored.


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
        args = ScriptCall(
            "scan_locations",
            home=key[1:-1],
            at=key,
            hash_number=self._number,
            cursor=binary(self._cursor),
            count=STEP_IDS,
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
