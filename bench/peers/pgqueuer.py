"""pgqueuer: its queue manager in this process with a pool of asyncpg, on uvloop, tables logged (its default).

It fetches in batches and buffers what is finished. Batches of 10 (its default), 100, 500 and 1,000 were
tried: from 100 on it did the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import uvloop  # type: ignore[import-not-found,unused-ignore]
from pgqueuer import PgQueuer  # type: ignore[import-not-found,unused-ignore]
from pgqueuer.queries import Queries  # type: ignore[import-not-found,unused-ignore]

from bench import meter
from bench.meter import Measured, Order

BATCH = 100
NAME = "noop"


async def _open(order: Order) -> tuple[Any, Any]:
    pool = await asyncpg.create_pool(order.address, min_size=2, max_size=5)
    pgq = PgQueuer.from_asyncpg_pool(pool)
    if not await pool.fetchval("select to_regclass('pgqueuer') is not null"):
        await Queries(pgq.connection).install()
    pgq.entrypoint(NAME)(meter.ajob)
    return pgq, pgq.queries


async def _many(queries: Any, jobs: int) -> None:
    for size in meter.batches(jobs):
        await queries.enqueue([NAME] * size, [b"{}"] * size, [0] * size)


async def _run(pgq: Any) -> None:
    await pgq.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


async def process(order: Order) -> None:
    """Enqueued beforehand, then worked off."""
    pgq, queries = await _open(order)
    await _many(queries, order.jobs)
    meter.count(order)
    await _run(pgq)


async def enqueue_one(order: Order) -> Measured:
    """One call for each job."""
    _, queries = await _open(order)
    with meter.Watch(order.server) as watch:
        for _ in range(order.jobs):
            await queries.enqueue(NAME, b"{}", 0)
    return watch.sample(order.jobs)


async def enqueue_many(order: Order) -> Measured:
    """One call for a thousand jobs."""
    _, queries = await _open(order)
    with meter.Watch(order.server) as watch:
        await _many(queries, order.jobs)
    return watch.sample(order.jobs)


async def latency(order: Order) -> Measured:
    """Client here, worker in another process."""
    _, queries = await _open(order)
    with meter.idle_worker(order) as picks:
        for _ in picks.turns():
            await queries.enqueue(NAME, b"{}", 0)
    return picks.sample()


async def serve(order: Order) -> None:
    """The worker of `latency`."""
    meter.tell_picks()
    await _run((await _open(order))[0])


if __name__ == "__main__":
    uvloop.install()
    meter.main(
        {
            "process": process,
            "enqueue-one": enqueue_one,
            "enqueue-many": enqueue_many,
            "latency": latency,
            "serve": serve,
        }
    )
