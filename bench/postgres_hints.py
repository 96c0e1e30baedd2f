"""Transactional enqueues beside an idle worker: NOTIFY holds a lock of the server until its commit is flushed.

`python -m bench.postgres_hints` enqueues in transactions over eight connections, each round once without a waiting row
and once with one, and prints the medians and their ratio. Nobody listens, so it counts the commits alone.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from itertools import count

import psycopg

from taskharbor.drivers import JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres

CONNECTIONS, SECONDS, ROUNDS = 8, 3.0, 5


async def measured(address: str, driver: PostgresDriver, numbers: count[int]) -> float:
    """Commits in a second."""
    now, done = await driver.server_time(), 0
    until = time.monotonic() + SECONDS

    async def work() -> None:
        nonlocal done
        async with await psycopg.AsyncConnection.connect(address) as connection:
            while time.monotonic() < until:
                await driver.enqueue_on(connection, [JobRecord(id=f"j{next(numbers)}", type="t")], now)
                await connection.commit()
                done += 1

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return done / SECONDS


async def main() -> None:
    server = postgres.Server(fsync="on", synchronous_commit="on")
    try:
        address = server.address(server.database())
        driver = PostgresDriver(address)
        await driver.open()
        numbers, without, beside = count(), list[float](), list[float]()
        for _ in range(ROUNDS):
            await driver._execute("delete from taskharbor.waiting")
            without.append(await measured(address, driver, numbers))
            await driver._execute("insert into taskharbor.waiting (queue, waiter) values ('default', 'idle')")
            beside.append(await measured(address, driver, numbers))
        await driver.close()
        one, two = statistics.median(without), statistics.median(beside)
        print(f"without {one:.0f}/s, beside an idle worker {two:.0f}/s: {two / one:.2f}")
    finally:
        server.stop()


if __name__ == "__main__":
    asyncio.run(main())
