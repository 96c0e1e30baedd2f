"""huey on SQLite and on Redis: its own consumer in this process, plain functions, no periodic tasks, no health checks.

A job is taken out of the store when it is fetched; there is no acknowledgement, so one that is not finished is lost.
SQLite: `fsync=True`, or False when relaxed (then it does not even wait for the disk at a checkpoint); one thread,
because all of them share one connection and its lock; a poll every millisecond. Redis: a blocking pop.
"""

from __future__ import annotations

from typing import Any

import huey as peer  # type: ignore[import-not-found,unused-ignore]

from bench import meter
from bench.meter import Measured, Order


def _open(order: Order) -> tuple[Any, Any]:
    if order.address.startswith("redis://"):
        huey = peer.RedisHuey("bench", url=order.address)
    else:
        huey = peer.SqliteHuey("bench", filename=order.address, fsync=not order.relaxed)
    return huey, huey.task()(meter.job)


def _run(huey: Any) -> None:
    huey.create_consumer(
        workers=1,
        worker_type="thread",
        periodic=False,
        check_worker_health=False,
        scheduler_interval=60,
        initial_delay=0.001,
        backoff=1,
        max_delay=0.001,
    ).run()


def process(order: Order) -> None:
    """Enqueued beforehand, then consumed."""
    huey, task = _open(order)
    for _ in range(order.jobs):
        task()
    meter.count(order)
    _run(huey)


def enqueue_one(order: Order) -> Measured:
    """One call for each job."""
    _, task = _open(order)
    return meter.timed(order, task, order.jobs)


def latency(order: Order) -> Measured:
    """Client here, consumer in another process."""
    _, task = _open(order)
    with meter.idle_worker(order) as picks:
        for _ in picks.turns():
            task()
    return picks.sample()


def serve(order: Order) -> None:
    """The consumer of `latency`."""
    meter.tell_picks()
    _run(_open(order)[0])


if __name__ == "__main__":
    meter.main({"process": process, "enqueue-one": enqueue_one, "latency": latency, "serve": serve})
