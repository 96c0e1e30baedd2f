"""huey on SQLite and on Redis: its own consumer in this process, plain functions, no periodic tasks, no health checks.

A job is taken out of the store when it is fetched; there is no acknowledgement, so one that is not finished is lost.
SQLite: `fsync=True`, or False when relaxed (then it does not even wait for the disk at a checkpoint); one thread,
because all of them share one connection and its lock; a poll every millisecond. Redis: a blocking pop; 1, 2, 4, 8 and
16 threads were tried: 8 were best.
"""

from __future__ import annotations

from typing import Any

import huey as peer

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes


class Huey:
    """huey behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        if order.address.startswith("redis://"):
            self._huey: Any = peer.RedisHuey("bench", url=order.address)
            self._threads = 8
        else:
            self._huey = peer.SqliteHuey("bench", filename=order.address, fsync=not order.relaxed)
            self._threads = 1
        self.send = self._huey.task()(meter.job)

    def send_many(self, jobs: int) -> None:
        """It has no call for many."""
        for _ in range(jobs):
            self.send()

    def work(self) -> None:
        """Its consumer."""
        self._huey.create_consumer(
            workers=self._threads,
            worker_type="thread",
            periodic=False,
            check_worker_health=False,
            scheduler_interval=60,
            initial_delay=0.001,
            backoff=1,
            max_delay=0.001,
        ).run()


MODES = modes(Huey)

if __name__ == "__main__":
    meter.main(MODES)
