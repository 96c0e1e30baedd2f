"""persist-queue's SQLiteAckQueue: a queue of one process and no worker, so the loop around it is ours: get, run, ack.

It leaves `synchronous` at SQLite's default, FULL, and has no option for it. It keeps its state in the process, so that
a second one does not notice new jobs: no figure for picking up.
"""

from __future__ import annotations

import os.path
from typing import Any

from persistqueue import SQLiteAckQueue
from persistqueue.serializers import json as serializer

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes


class PersistQueue:
    """persist-queue behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._queue: Any = SQLiteAckQueue(os.path.dirname(order.address), serializer=serializer)

    def send(self) -> None:
        """A transaction for each."""
        self._queue.put({})

    def send_many(self, jobs: int) -> None:
        """It has no call for many."""
        for _ in range(jobs):
            self.send()

    def work(self) -> None:
        """Gotten and acknowledged, one by one."""
        while True:
            item = self._queue.get(block=False, raw=True)
            meter.job()
            self._queue.ack(item)


MODES = modes(PersistQueue)

if __name__ == "__main__":
    meter.main(MODES)
