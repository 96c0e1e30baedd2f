"""Flows on a Cluster: which queues have jobs of a flow, and whether it is cancelled.

Both are in a key of the flow's own, `{th:flow:<id>}`, which no script of a queue reaches.

A call names its queues there before it stores anything (`enter`) and confirms them afterwards (`confirm`): a queue
without a record of the flow leaves, and the key is deleted with the last one. A client that removes an empty queue may
meet a call that has entered it and not yet stored. That call enters it again when it confirms, and then sees a
cancellation that passed its jobs by.

The flag has a copy in each queue, for calls that entered before the flow was cancelled and store afterwards. It carries
the flow's generation, which changes when the flow is forgotten: what is left of an old flow stops no new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.redis.flows import cancel_part
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
            await cancel_part(self._router.endpoint, flow, now, queue, [queue], generation.decode())
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

    async def cancel(self, flow: str, cancel_in: CancelIn) -> int:
        """Cancel what is not terminal; returns how many."""
        flagged = await self._register("cancel", flow)
        if not flagged:
            return 0
        generation, *queues = [text.decode() for text in flagged]
        number, any_record = 0, False
        for queue in queues:
            cancelled, found = await cancel_in(queue, [queue], generation)
            number += cancelled
            any_record = any_record or found
        await self._router.outbox.deliver(queues)
        if not any_record:
            await self.tidy(flow)
        return number

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
