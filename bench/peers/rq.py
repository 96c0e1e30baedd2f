"""rq: its SimpleWorker, which runs jobs in its own process instead of a fork for each; results are not kept."""

from __future__ import annotations

from typing import Any

import redis
from rq import Queue, SimpleWorker

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes


class Rq:
    """rq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._connection: Any = redis.Redis.from_url(order.address)
        self._queue: Any = Queue("bench", connection=self._connection)

    def send(self) -> None:
        """One call for each."""
        self._queue.enqueue(meter.job, result_ttl=0)

    def send_many(self, jobs: int) -> None:
        """One pipeline for all."""
        self._queue.enqueue_many([Queue.prepare_data(meter.job, result_ttl=0) for _ in range(jobs)])

    def work(self) -> None:
        """Its worker."""
        worker = SimpleWorker([self._queue], connection=self._connection, log_job_description=False)
        worker.work(logging_level="WARNING")


MODES = modes(Rq)

if __name__ == "__main__":
    meter.main(MODES)
