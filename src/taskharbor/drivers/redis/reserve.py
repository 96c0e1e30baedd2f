"""Reserve: jobs under new leases. If the reply is lost, the same call is sent again with the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from taskharbor.drivers.base import within_lease
from taskharbor.drivers.redis.endpoint import LOST, elapsed_ms, monotonic
from taskharbor.drivers.redis.router import QueueGrants
from taskharbor.drivers.redis.script_args import ReserveArgs, ReservePlainArgs
from taskharbor.drivers.redis.store import RedisStore
from taskharbor.model.errors import BackendUnavailable


async def reserve(
    store: RedisStore, queues: Sequence[str], now: int, lease_ms: int, limit: int, worker: str, tokens: Sequence[str]
) -> list[QueueGrants]:
    """What was granted in each queue."""

    async def reserve_some(home: str, some: Sequence[str], share: int, own: Sequence[str]) -> list[QueueGrants]:
        args = ReserveArgs(now=now, home=home, queues=some, lease_ms=lease_ms, limit=share, worker=worker, tokens=own)
        return await _reserve(store, args)

    return await store.router.reserve(queues, limit, tokens, reserve_some)


async def _reserve(store: RedisStore, args: ReserveArgs) -> list[QueueGrants]:
    """One reserve. If its reply is lost, the repeat finds by the tokens what was granted, and leases it from now on:
    the time without a reply is not taken from the lease."""
    within = within_lease(timedelta(milliseconds=args.lease_ms))
    began = monotonic()
    try:
        if len(args.queues) == 1 and store.try_plain("reserve"):
            grants = await _reserve_plain(store, args, within)
            if grants is not None:
                return [grants]
            store.skip_plain("reserve")
        replies = await store.run(args, repeat=False, within=within)
    except BackendUnavailable as error:
        if not isinstance(error.__cause__, LOST):
            raise
        args = msgspec.structs.replace(args, now=args.now + elapsed_ms(began), repeats=args.now)
        replies = await store.run(args, repeat=False, within=within)
    end = args.now + args.lease_ms
    return [
        QueueGrants(name.decode(), arrival, [(id, token.decode(), values) for id, token, values in jobs], end)
        for name, arrival, jobs in replies
    ]


async def _reserve_plain(store: RedisStore, args: ReserveArgs, within: float | None) -> QueueGrants | None:
    """A reserve from one queue that has only plain jobs; None if it has others."""
    queue, tokens = args.queues[0], args.tokens
    plain = ReservePlainArgs(
        now=args.now,
        home=args.home,
        queue=queue,
        lease_ms=args.lease_ms,
        limit=args.limit,
        worker=args.worker,
        tokens=tokens,
    )
    reply = await store.run(plain, repeat=False, within=within)
    if reply == b"SLOW":
        return None
    arrival, jobs = reply
    granted = [(values[-1], token, values) for values, token in zip(jobs, tokens, strict=False)]
    return QueueGrants(queue, arrival, granted, args.now + args.lease_ms)
