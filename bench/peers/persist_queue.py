"""persist-queue's SQLiteAckQueue: a queue of one process and no worker, so the loop around it is ours: get, run, ack.

It leaves `synchronous` at SQLite's default, FULL, and has no option for it. It keeps its state in the process, so that
a second one does not hear of jobs: no figure for picking up.
"""

from __future__ import annotations

import os.path
from typing import Any

from persistqueue import SQLiteAckQueue  # type: ignore[import-not-found,unused-ignore]
from persistqueue.serializers import json as serializer  # type: ignore[import-not-found,unused-ignore]

from bench import meter
from bench.meter import Measured, Order


def _open(order: Order) -> Any:
    return SQLiteAckQueue(os.path.dirname(order.address), serializer=serializer)


def process(order: Order) -> None:
    """Put beforehand, then gotten and acknowledged, one by one."""
    queue = _open(order)
    for _ in range(order.jobs):
        queue.put({})
    meter.count(order)
    while True:
        item = queue.get(block=False, raw=True)
        meter.job()
        queue.ack(item)


def enqueue_one(order: Order) -> Measured:
    """A transaction for each job."""
    queue = _open(order)
    return meter.timed(order, lambda: queue.put({}), order.jobs)


if __name__ == "__main__":
    meter.main({"process": process, "enqueue-one": enqueue_one})
