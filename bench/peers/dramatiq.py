"""dramatiq: its Worker in this process with threads, plain functions; of its middleware the retries alone.

It fetches twice as many jobs as it has threads. 2, 8, 16, 32, 64 and 128 threads were tried: 32 was best.
"""

from __future__ import annotations

import threading
from typing import Any

import dramatiq as peer
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries

from bench import meter
from bench.meter import Order
from bench.peers.modes import modes

THREADS = 32


class Dramatiq:
    """dramatiq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._broker: Any = RedisBroker(url=order.address, middleware=[Retries()])
        peer.set_broker(self._broker)
        self._actor: Any = peer.actor(meter.job, actor_name="noop")

    def send(self) -> None:
        """One call for each."""
        self._actor.send()

    def send_many(self, jobs: int) -> None:
        """It has no call for many."""
        for _ in range(jobs):
            self._actor.send()

    def work(self) -> None:
        """Its worker."""
        peer.Worker(self._broker, worker_threads=THREADS).start()
        threading.Event().wait()


MODES = modes(Dramatiq)

if __name__ == "__main__":
    meter.main(MODES)
