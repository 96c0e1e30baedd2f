"""Ids that are in the lists and sets of a queue, but not in its index: foreign clients published them, or the index has
lost them. All lists and sets are walked in slices; what was found in large ones is used for some seconds."""

from __future__ import annotations

from collections.abc import Sequence

from taskharbor.drivers.redis.endpoint import monotonic
from taskharbor.drivers.redis.router import sliced
from taskharbor.drivers.redis.script_args import ForeignIdsArgs
from taskharbor.drivers.redis.scripts import binary
from taskharbor.drivers.redis.store import RedisStore

MAX_SLICES = 20  # a queue whose search takes more scripts is searched every few seconds only
MAX_LISTS = 200  # in one script
SCAN_EVERY_S = 10.0  # between two searches of such a queue

ForeignIds = dict[str, tuple[float, Sequence[bytes]]]  # queue → when it was searched, and the ids


async def foreign_ids(store: RedisStore, queue: str, known: ForeignIds) -> Sequence[bytes]:
    """The ids of one queue. `known`: what was found lately."""
    last = known.get(queue)
    if last is not None and monotonic() - last[0] < SCAN_EVERY_S:
        return last[1]
    found, slices = await _search(store, queue)
    known.pop(queue, None)
    if slices > MAX_SLICES:
        known[queue] = (monotonic(), found)
    return found


async def _search(store: RedisStore, queue: str) -> tuple[Sequence[bytes], int]:
    """The ids, and in how many slices they were found."""
    run, home, slices = store.run, store.router.home_of(queue), 0
    found: dict[bytes, None] = {}
    groups: dict[bytes, None] = {}
    for source in ("delayed", "active", "groups:ready"):
        cursor = b""
        while cursor != b"0":
            args = ForeignIdsArgs(home=home, queue=queue, step="sorted", source=source, cursor=binary(cursor or b"0"))
            ids, met, cursor = await run(args)
            found |= dict.fromkeys(ids)
            groups |= dict.fromkeys(met)
            slices += 1
    names = [b"wait", b"failed", b"completed", *(b"g:" + gid + b":wait" for gid in groups)]
    for some in sliced(names, MAX_LISTS):
        lists, number, skip = [binary(name) for name in some], 1, 0
        while number:
            args = ForeignIdsArgs(home=home, queue=queue, step="lists", lists=lists, list_number=number, skip=skip)
            ids, number, skip = await run(args)
            found |= dict.fromkeys(ids)
            slices += 1
    return list(found), slices
