"""litequeue: a table of messages and no worker, so the loop around it is ours: pop, run, done.

It sets `synchronous=NORMAL` itself; unless relaxed it is set to FULL, as our driver's default is. Nothing wakes a
waiting process, so there is no figure for picking up: it would be that of a poll we chose.
"""

from __future__ import annotations

from typing import Any

from litequeue import LiteQueue

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes


class Litequeue:
    """litequeue behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._queue: Any = LiteQueue(order.address)
        if not order.relaxed:
            self._queue.conn.execute("pragma synchronous = full")

    def send(self) -> None:
        """A transaction for each."""
        self._queue.put("{}")

    def send_many(self, jobs: int) -> None:
        """A transaction for all."""
        with self._queue.transaction():
            for _ in range(jobs):
                self._queue.put("{}")

    def work(self) -> None:
        """Popped and marked as done, one by one."""
        while message := self._queue.pop():
            meter.job()
            self._queue.done(message.message_id)


MODES = modes(Litequeue)

if __name__ == "__main__":
    meter.main(MODES)
