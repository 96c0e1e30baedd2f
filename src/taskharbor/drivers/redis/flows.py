"""Flows: read one, cancel one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from taskharbor.drivers.base import FLOW_CANCELLED_REASON
from taskharbor.drivers.redis.id_walk import FoundId
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.script_args import CancelFlowArgs, ReadFlowArgs, ReadJobsArgs
from taskharbor.drivers.redis.scripts import binary
from taskharbor.drivers.redis.store import RedisStore

MAX_READ = 200  # records in one script
MAX_WHOLE = 500  # jobs of a flow that one script reads, of which nothing changes meanwhile


async def read_flow(store: RedisStore, flow: str) -> list[Any]:
    """The records of a flow, as th.whole_record returns them."""
    found: list[Any] = []
    for home, queues in await store.router.flow_parts(flow):
        found += await _read_part(store, flow, home, queues)
    return found


async def _read_part(store: RedisStore, flow: str, home: str, queues: list[str] | Literal[False]) -> list[Any]:
    """A large flow is read in slices until no job is new. So what a job spawned, which was read as done, is read
    too."""
    found: dict[tuple[bytes, bytes], Any] = {}
    while True:
        is_large, replies = await store.run(ReadFlowArgs(home=home, flow=flow, queues=queues, most=MAX_WHOLE))
        if not is_large:
            return list(replies)
        new = [(queue, id) for queue, id in replies if (queue, id) not in found]
        if not new:
            return [record for record in found.values() if record]
        for part in sliced(new, MAX_READ):
            jobs = [(binary(id), binary(queue)) for queue, id in part]
            found |= dict(zip(part, await store.run(ReadJobsArgs(home=home, jobs=jobs)), strict=True))


async def flow_ids(store: RedisStore, flow: str) -> list[FoundId]:
    """The ids of a flow's jobs, with their queues."""
    found: list[FoundId] = []
    for home, queues in await store.router.flow_parts(flow):
        _, replies = await store.run(ReadFlowArgs(home=home, flow=flow, queues=queues, most=0))
        found += [FoundId(id.decode(errors="replace"), id, queue.decode()) for queue, id in replies]
    return found


async def cancel_flow(store: RedisStore, flow: str, now: int) -> int:
    """Cancel the jobs of a flow that are not terminal; returns how many."""
    return await store.router.cancel_flow(flow, partial(cancel_part, store, flow, now))


async def cancel_part(
    store: Any, flow: str, now: int, home: str, queues: Sequence[Any] | Literal[False], generation: str
) -> tuple[int, bool]:
    """Flag a flow, and cancel what is not terminal, in slices. Returns how many, and whether it has any record.
    `store`: whatever has `run`."""
    cancelled, number, cursor = 0, 1, b"0"
    while True:
        names = [one if isinstance(one, str) else binary(one) for one in queues] if queues is not False else queues
        args = CancelFlowArgs(
            now=now,
            home=home,
            flow=flow,
            queues=names,
            reason=FLOW_CANCELLED_REASON,
            generation=generation,
            queue_number=number,
            cursor=binary(cursor),
        )
        some, any_record, queues, number, cursor = await store.run(args, repeat=False)
        cancelled += some
        if not number:
            return cancelled, bool(any_record)
