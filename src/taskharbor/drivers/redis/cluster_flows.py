"""Runs on a Cluster: which queues have jobs of a run, and whether it is cancelled.

Both stand in a key of the run's own, `{th:flow:<run>}`, which no script of a queue reaches.

A call names its queues there before it stores anything (`enter`) and confirms them afterwards (`confirm`): a queue
without a record of the run leaves, and so does the key when none is left. Whoever takes an empty queue out may meet a
call that has entered it and not yet stored: that call enters it again when it confirms, and then sees a cancellation
that passed its jobs by.

The flag has a copy in each queue, for calls that entered before the run was cancelled and store afterwards. It carries
the run's generation, which changes when the run is forgotten: what is left of an old run stops nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from taskharbor.drivers.redis.endpoint import gathered
from taskharbor.model.job import JobRecord

if TYPE_CHECKING:
    from taskharbor.drivers.redis.cluster_commands import ClusterCommands


class FlowEntry(NamedTuple):
    """What a call learned of a run when it entered it."""

    generation: str
    cancelled: bool


def flow_key(flow: str) -> str:
    return f"{{th:flow:{flow}}}"


class ClusterFlows:
    """One client's way to the runs."""

    def __init__(self, commands: ClusterCommands) -> None:
        self._commands = commands

    async def _register(self, operation: str, flow: str, *rest: str) -> Any:
        return await self._commands.register(operation, flow_key(flow), rest)

    async def enter(self, jobs: Iterable[JobRecord]) -> dict[str, FlowEntry]:
        """Name the queues of the runs that these jobs belong to."""
        named = _queues_by_run(jobs)
        replies = await gathered([self._register("enter", flow, *queues) for flow, queues in named.items()])
        return {flow: FlowEntry(reply[0].decode(), bool(reply[1])) for flow, reply in zip(named, replies, strict=True)}

    async def confirm(self, jobs: Iterable[JobRecord], entered: dict[str, FlowEntry], now: int) -> None:
        """After a call: keep the queues that have a record of the run, and let the others leave."""
        for flow, queues in _queues_by_run(jobs).items():
            there = await self._with_records(flow, queues)
            if there:
                before = entered.get(flow)
                if await self.stored(flow, there, now, was_cancelled=before is not None and before.cancelled):
                    await self._commands.outbox.deliver(there)
            if len(there) < len(queues):
                await self.tidy(flow)

    async def stored(self, flow: str, queues: Sequence[str], now: int, *, was_cancelled: bool = False) -> bool:
        """These queues have records of the run. If it was cancelled meanwhile, nobody may have looked into them.
        Answers whether that posted messages, which are for the caller to deliver."""
        generation, cancelled = await self._register("enter", flow, *queues)
        if not cancelled or was_cancelled:
            return False
        for queue in queues:
            await self._cancel_in(queue, flow, generation.decode(), now)
        return True

    async def tidy(self, flow: str) -> None:
        """Let the queues leave that have no record of the run; with the last one the run is forgotten."""
        queues = await self.queues(flow)
        there = set(await self._with_records(flow, queues))
        for queue in queues:
            if queue not in there:
                await self._commands.endpoint.ask("DEL", f"{{{queue}}}:th:flow!:{flow}", key=f"{{{queue}}}")
                await self._register("left", flow, queue)
                if await self._with_records(flow, [queue]):
                    await self._register("enter", flow, queue)

    async def _with_records(self, flow: str, queues: Sequence[str]) -> list[str]:
        endpoint = self._commands.endpoint
        asked = [endpoint.ask("EXISTS", f"{{{queue}}}:th:flow:{flow}", key=f"{{{queue}}}") for queue in queues]
        return [queue for queue, there in zip(queues, await gathered(asked), strict=True) if there]

    async def queues(self, flow: str) -> list[str]:
        fields = await self._commands.endpoint.ask("HKEYS", flow_key(flow), key=flow_key(flow))
        return [field[1:].decode() for field in fields if field.startswith(b"=")]

    async def cancel(self, flow: str, now: int) -> int:
        """Cancel what is not terminal; answers how many."""
        flagged = await self._register("cancel", flow)
        if not flagged:
            return 0
        generation, *queues = [text.decode() for text in flagged]
        number, any_record = 0, False
        for queue in queues:
            cancelled, found = await self._cancel_in(queue, flow, generation, now)
            number += cancelled
            any_record = any_record or found
        await self._commands.outbox.deliver(queues)
        if not any_record:
            await self.tidy(flow)
        return number

    async def _cancel_in(self, queue: str, flow: str, generation: str, now: int) -> tuple[int, bool]:
        return await self._commands.cancel_run(flow, queue, queue, [queue], generation, now)

    async def resume(self, flow: str) -> None:
        """Take the flag away, here and in the queues."""
        endpoint = self._commands.endpoint
        await endpoint.ask("HDEL", flow_key(flow), "!", key=flow_key(flow))
        for queue in await self.queues(flow):
            await endpoint.ask("DEL", f"{{{queue}}}:th:flow!:{flow}", key=f"{{{queue}}}")

    async def is_open(self, flow: str) -> bool:
        """Whether a job of the run is neither done nor cancelled."""
        for queue in await self.queues(flow):
            if await self._commands.endpoint.ask("EXISTS", f"{{{queue}}}:th:flow+:{flow}", key=f"{{{queue}}}"):
                return True
        return False


def _queues_by_run(jobs: Iterable[JobRecord]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for job in jobs:
        if job.flow_id is not None:
            found.setdefault(job.flow_id, {})[job.queue] = None
    return {flow: list(queues) for flow, queues in found.items()}
