"""procrastinate: its worker in this process with psycopg's pool, coroutine tasks, LISTEN on.

It fetches and finishes jobs one by one, each in a transaction: more of them at a time only help as far as connections
and commits can overlap; with 5, 10 and 30 it did the same. `delete_jobs="successful"` spares it rows that stay.
"""

from __future__ import annotations

import logging
from typing import Any

import procrastinate as peer

from bench import meter
from bench.meter import Order
from bench.peers.modes import async_modes

CONCURRENCY = 5


class Procrastinate:
    """procrastinate behind the benchmark's three calls."""

    def __init__(self, order: Order) -> None:
        connector = peer.PsycopgConnector(conninfo=order.address, min_size=4, max_size=CONCURRENCY + 2)
        self._app: Any = peer.App(connector=connector)
        self._task: Any = self._app.task(name="noop")(meter.ajob)

    async def open(self) -> None:
        """The pool, and the schema."""
        await self._app.open_async()
        missing = "select to_regclass('procrastinate_jobs') is null as missing"
        if (await self._app.connector.execute_query_one_async(missing))["missing"]:
            await self._app.schema_manager.apply_schema_async()

    async def send(self) -> None:
        """One call for each."""
        await self._task.defer_async()

    async def send_many(self, jobs: int) -> None:
        """One call for all."""
        await self._task.batch_defer_async(*[{}] * jobs)

    async def work(self) -> None:
        """Its worker."""
        await self._app.run_worker_async(
            concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
        )


MODES = async_modes(Procrastinate)

if __name__ == "__main__":
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    meter.main(MODES)
