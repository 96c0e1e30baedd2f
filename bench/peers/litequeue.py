"""litequeue: a table of messages and no worker, so the loop around it is ours: pop, run, done.

It sets `synchronous=NORMAL` itself; unless relaxed it is set to FULL, as our driver's default is. Nothing wakes a
waiting process, so there is no figure for picking up: it would be that of a poll we chose.
"""

from __future__ import annotations

from typing import Any

from litequeue import LiteQueue  # type: ignore[import-not-found,unused-ignore]

from bench import meter
from bench.meter import Measured, Order


def _open(order: Order) -> Any:
    queue = LiteQueue(order.address)
    if not order.relaxed:
        queue.conn.execute("pragma synchronous = full")
    return queue


def process(order: Order) -> None:
    """Put beforehand, then popped and marked as done, one by one."""
    queue = _open(order)
    with queue.transaction():
        for _ in range(order.jobs):
            queue.put("{}")
    meter.count(order)
    while message := queue.pop():
        meter.job()
        queue.done(message.message_id)


def enqueue_one(order: Order) -> Measured:
    """A transaction for each job."""
    queue = _open(order)
    return meter.timed(order, lambda: queue.put("{}"), order.jobs)


def enqueue_many(order: Order) -> Measured:
    """A transaction for a thousand jobs."""
    queue = _open(order)
    with meter.Watch() as watch:
        for size in meter.batches(order.jobs):
            with queue.transaction():
                for _ in range(size):
                    queue.put("{}")
    return watch.sample(order.jobs)


if __name__ == "__main__":
    meter.main({"process": process, "enqueue-one": enqueue_one, "enqueue-many": enqueue_many})
