"""saq: its Worker in this process, coroutine functions, results kept for a second, on uvloop.

`ttl=-1`, which keeps none, makes it fail after each job. 5, 10, 20, 50 and 100 jobs at a time were tried: 50 was best.
It has no call for many jobs that does not wait for their results; several calls at a time are made instead.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from saq import Queue, Worker

from bench import meter
from bench.meter import Order
from bench.peers.modes import async_modes

SLOTS = 50


class Saq:
    """saq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._queue: Any = Queue.from_url(order.address)

    async def open(self) -> None:
        """The connection."""
        await self._queue.connect()

    async def send(self) -> None:
        """One call for each."""
        await self._queue.enqueue("noop", ttl=1)

    async def send_many(self, jobs: int) -> None:
        """Several calls at a time."""
        for start in range(0, jobs, 50):
            await asyncio.gather(*(self.send() for _ in range(min(50, jobs - start))))

    async def work(self) -> None:
        """Its worker."""
        await Worker(self._queue, functions=[("noop", meter.ajob)], concurrency=SLOTS).start()


MODES = async_modes(Saq)

if __name__ == "__main__":
    uvloop.install()
    meter.main(MODES)
