"""The heads of queues: what comes next, and since when the oldest ready job waits: a script for each part of a store.

Groups at their limit are found by their active jobs. So in a queue with more than MAX_LOOKS groups and active jobs it
is not known since when the oldest waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taskharbor.drivers.heads import in_turn, looks_for_each
from taskharbor.drivers.redis.records import moment_of, text_of
from taskharbor.drivers.redis.script_args import HeadsArgs
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.job import QueueHead

MAX_LOOKS = 1000  # in one script, as no other call gets a turn meanwhile; the same again for what is next


async def heads(store: RedisStore, queues: Sequence[str], now: int, n: int) -> dict[str, QueueHead]:
    """The head of each of these queues, by name."""
    looks = min(MAX_LOOKS, looks_for_each(queues))

    def args(home: str, some: list[str]) -> HeadsArgs:
        return HeadsArgs(now=now, home=home, queues=some, wanted=n, looks=looks)

    replies = await store.run_for_each(queues, queues, MAX_LOOKS // looks, args)
    return {queue: _head(queue, reply, n) for queue, reply in zip(queues, replies, strict=True)}


def _head(queue: str, reply: list[Any], n: int) -> QueueHead:
    oldest, oldest_known, following = reply
    oldest_at = None if oldest is None else moment_of(int(oldest))
    if n == 0 or following is None:
        return QueueHead(queue, oldest_at, (), bool(oldest_known), n == 0)
    groups_next, ungrouped, groups = following
    names = in_turn(map(text_of, ungrouped), [list(map(text_of, ids)) for ids in groups], bool(groups_next), n)
    return QueueHead(queue, oldest_at, names, bool(oldest_known))
