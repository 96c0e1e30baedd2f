"""Compares again what blocked jobs wait for with the records of their dependencies.

A message between two hash slots of a Cluster only hints that something has changed: a failover may lose it, on either
side. Another program may delete what one job knows of another. So the visits of housekeeping ask for all blocked jobs
in turn. One whose dependency is done becomes ready. One whose dependency is gone goes to the dead letter queue with the
reason. A dependency that does not know its dependent learns of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskharbor.drivers.redis.records import name_of
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.errors import BackendUnavailable

COMPARE_EVERY_S = 60  # for which a blocked job is left alone
MAX_EDGES = 200  # in one script


async def compare_edges(store: RedisStore, queue: str, found: Sequence[Any], now: int) -> None:
    """Compare edges of blocked jobs in a queue, as housekeep.lua returns them."""
    edges = [(name, _sendable(edge)) for edge in found if (name := name_of(edge[0])) is not None]
    missing = await _compare(store, queue, edges, now, are_gone=False)
    if missing and await store.router.all_arrived():  # else a message may still bring them
        await _compare(store, queue, missing, now, are_gone=True)


def _sendable(edge: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(binary(value) if isinstance(value, bytes) else False for value in edge)


Edge = tuple[str, tuple[Any, ...]]  # the queue of the dependency, and the edge as compare_edges.lua takes it


async def _compare(store: RedisStore, queue: str, edges: Sequence[Edge], now: int, *, are_gone: bool) -> list[Edge]:
    """Returns the edges whose dependency has no record, unless they were mended."""
    missing: list[Edge] = []
    for home, positions in store.router.by_home([name for name, _ in edges]):
        for part in sliced([edges[position] for position in positions], MAX_EDGES):
            args = ScriptCall(
                "compare_edges",
                now=now,
                home=home,
                edges=[edge for _, edge in part],
                dependents_q=queue,
                are_gone=are_gone,
            )
            try:
                codes = await store.run(args)
            except BackendUnavailable:  # of this part: in a minute it is compared again
                break
            missing += [edge for edge, code in zip(part, codes, strict=True) if code]
    await store.router.deliver(dict.fromkeys([queue, *(name for name, _ in edges)]))
    return missing
