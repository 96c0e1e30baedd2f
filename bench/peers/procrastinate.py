"""procrastinate: its worker in this process with psycopg's pool, coroutine tasks, LISTEN on.

It fetches and finishes jobs one by one, each in a transaction: more of them at a time only help as far as connections
and commits can overlap; with 5, 10 and 30 it did the same. `delete_jobs="successful"` spares it rows that stay.
"""

from __future__ import annotations

from typing import Any

import procrastinate as peer  # type: ignore[import-not-found,unused-ignore]

from bench import meter
from bench.meter import Measured, Order

CONCURRENCY = 5


def _app(order: Order) -> tuple[Any, Any]:
    app = peer.App(connector=peer.PsycopgConnector(conninfo=order.address, min_size=4, max_size=CONCURRENCY + 2))
    return app, app.task(name="noop")(meter.ajob)


async def _migrated(app: Any) -> None:
    connection = app.connector
    tables = await connection.execute_query_one_async("select to_regclass('procrastinate_jobs') is null as missing")
    if tables["missing"]:
        await app.schema_manager.apply_schema_async()


async def _many(task: Any, jobs: int) -> None:
    for size in meter.batches(jobs):
        await task.batch_defer_async(*[{}] * size)


async def _run(app: Any) -> None:
    await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False)


async def process(order: Order) -> None:
    """Deferred beforehand, then worked off."""
    app, task = _app(order)
    async with app.open_async():
        await _migrated(app)
        await _many(task, order.jobs)
        meter.count(order)
        await _run(app)


async def enqueue_one(order: Order) -> Measured:
    """One call for each job."""
    app, task = _app(order)
    async with app.open_async():
        await _migrated(app)
        with meter.Watch(order.server) as watch:
            for _ in range(order.jobs):
                await task.defer_async()
    return watch.sample(order.jobs)


async def enqueue_many(order: Order) -> Measured:
    """One call for a thousand jobs."""
    app, task = _app(order)
    async with app.open_async():
        await _migrated(app)
        with meter.Watch(order.server) as watch:
            await _many(task, order.jobs)
    return watch.sample(order.jobs)


async def latency(order: Order) -> Measured:
    """Client here, worker in another process."""
    app, task = _app(order)
    async with app.open_async():
        await _migrated(app)
        with meter.idle_worker(order) as picks:
            for _ in picks.turns():
                await task.defer_async()
    return picks.sample()


async def serve(order: Order) -> None:
    """The worker of `latency`."""
    meter.tell_picks()
    app, _ = _app(order)
    async with app.open_async():
        await _run(app)


if __name__ == "__main__":
    meter.main(
        {
            "process": process,
            "enqueue-one": enqueue_one,
            "enqueue-many": enqueue_many,
            "latency": latency,
            "serve": serve,
        }
    )
