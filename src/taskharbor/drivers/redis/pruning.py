"""Pruning: delete what is past its retention, in the queues that have anything to prune, a slice in each script.

A queue that cannot be reached, or is damaged so that it cannot be pruned, costs the others nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from taskharbor.drivers.redis.records import name_of, up_to_ms
from taskharbor.drivers.redis.scripts import ScriptCall, binary
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.drivers.slices import DoneSoFar, counted_pruned
from taskharbor.model.errors import BackendUnavailable, DriverError
from taskharbor.model.job import EPOCH

logger = logging.getLogger("taskharbor.drivers.redis")
MAX_ASKED_QUEUES = 250  # whether there is anything to prune, in one script


async def prune(store: RedisStore, queues: Sequence[str], before: int, limit: int) -> int:
    """Delete what finished before a moment; returns how many, at most `limit`."""
    kept_before = before + up_to_ms(EPOCH + store.endpoint.options.retention)

    def script(home: str, some: list[str]) -> ScriptCall:
        return ScriptCall("prune_due", now=before, home=home, kept_before=kept_before, queues=some)

    replies = await store.run_for_each(queues, queues, MAX_ASKED_QUEUES, script, partly=True)
    due = [queue for queue, reply in zip(queues, replies, strict=True) if reply == 1]
    with counted_pruned() as done:
        for home, part in store.router.parts(due):
            try:
                await _prune_part(store, home, part, before, kept_before, limit, done)
            except DriverError as error:
                if isinstance(error, BackendUnavailable) and not store.router.divides:
                    raise
                logger.warning("queues %s … cannot be pruned: %s", part[0], error)
            if done.number >= limit:
                break
    return done.number


async def _prune_part(
    store: RedisStore, home: str, queues: list[str], before: int, kept_before: int, limit: int, done: DoneSoFar
) -> None:
    known, skips = dict[bytes, bool](), [0, 0, 0]
    while done.number < limit:
        args = ScriptCall(
            "prune",
            now=before,
            kept_before=kept_before,
            home=home,
            limit=limit - done.number,
            queues=queues,
            flows_open=[part for flow, is_open in known.items() for part in (binary(flow), is_open)],
            skip_done=skips[0],
            skip_cancelled=skips[1],
            skip_kept=skips[2],
        )
        number, unknown, *skips, more = await store.run(args, repeat=False)
        done.number += number
        asked = {flow: await _is_open(store, flow) for flow in unknown}
        known |= asked
        if not all(asked.values()):
            skips = [0, 0, 0]  # some of what was skipped may go
        elif not more:
            break
    await store.router.deliver(queues)


async def _is_open(store: RedisStore, flow: bytes) -> bool:
    name = name_of(flow)
    return name is not None and await store.router.flow_is_open(name)  # no flow has a name that is not text
