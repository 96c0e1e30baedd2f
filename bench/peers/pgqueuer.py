"""pgqueuer: its queue manager in this process with a pool of asyncpg, on uvloop, tables logged (its default).

It fetches in batches and buffers what is finished. Batches of 10 (its default), 100, 500 and 1,000 were tried: from 100
on it did the same.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries

from bench import meter
from bench.meter import Order
from bench.peers.modes import async_modes

BATCH = 100
NAME = "noop"


class Pgqueuer:
    """pgqueuer behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        self._address = order.address

    async def open(self) -> None:
        """The pool, and the schema."""
        pool = await asyncpg.create_pool(self._address, min_size=2, max_size=5)
        self._manager: Any = PgQueuer.from_asyncpg_pool(pool)
        self._queries: Any = self._manager.queries
        if not await pool.fetchval("select to_regclass('pgqueuer') is not null"):
            await Queries(self._manager.connection).install()
        self._manager.entrypoint(NAME)(meter.ajob)

    async def send(self) -> None:
        """One call for each."""
        await self._queries.enqueue(NAME, b"{}", 0)

    async def send_many(self, jobs: int) -> None:
        """One call for all."""
        await self._queries.enqueue([NAME] * jobs, [b"{}"] * jobs, [0] * jobs)

    async def work(self) -> None:
        """Its queue manager."""
        await self._manager.run(batch_size=BATCH)


MODES = async_modes(Pgqueuer)

if __name__ == "__main__":
    uvloop.install()
    meter.main(MODES)
