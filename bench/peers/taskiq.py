"""taskiq with taskiq-redis: its receiver in this process, coroutine tasks, on uvloop.

The broker on a stream, which acknowledges; the one on a list, which loses what is taken and not finished, is not
measured. 10, 100 and 1,000 jobs at a time were tried: from 100 on it did the same. It has no call for many jobs;
several calls at a time are made instead.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from bench import meter
from bench.meter import Order
from bench.peers.modes import async_modes

SLOTS = 100


class Taskiq:
    """taskiq behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._broker: Any = RedisStreamBroker(order.address, consumer_id="0", xread_count=SLOTS)
        self._task: Any = self._broker.task(task_name="noop")(meter.ajob)

    async def open(self) -> None:
        """The connection, and the group of consumers."""
        await self._broker.startup()

    async def send(self) -> None:
        """One call for each."""
        await self._task.kiq()

    async def send_many(self, jobs: int) -> None:
        """Several calls at a time."""
        for start in range(0, jobs, 50):
            await asyncio.gather(*(self.send() for _ in range(min(50, jobs - start))))

    async def work(self) -> None:
        """Its receiver."""
        self._broker.is_worker_process = True
        await run_receiver_task(self._broker, max_async_tasks=SLOTS, validate_params=False, run_startup=False)


MODES = async_modes(Taskiq)

if __name__ == "__main__":
    uvloop.install()
    meter.main(MODES)
