"""arq: its Worker in this process, coroutine functions, results that are not kept, on uvloop.

It polls: the pause between two polls is 10 ms instead of half a second. 10, 100 and 1,000 jobs at a time were tried:
100 was best. It has no call for many jobs; several calls at a time are made instead.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from arq import Worker, create_pool, func
from arq.connections import RedisSettings

from bench import meter
from bench.meter import Order
from bench.peers.modes import async_modes

SLOTS = 100
POLL = 0.01


class Arq:
    """arq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._settings: Any = RedisSettings.from_dsn(order.address)

    async def open(self) -> None:
        """The pool."""
        self._pool: Any = await create_pool(self._settings)

    async def send(self) -> None:
        """One call for each."""
        await self._pool.enqueue_job("noop")

    async def send_many(self, jobs: int) -> None:
        """Several calls at a time."""
        for start in range(0, jobs, 50):
            await asyncio.gather(*(self.send() for _ in range(min(50, jobs - start))))

    async def work(self) -> None:
        """Its worker."""
        worker = Worker(
            [func(meter.ajob, name="noop", keep_result=0)],
            redis_pool=self._pool,
            max_jobs=SLOTS,
            poll_delay=POLL,
            handle_signals=False,
            log_results=False,
        )
        await worker.async_run()


MODES = async_modes(Arq)

if __name__ == "__main__":
    uvloop.install()
    meter.main(MODES)
