"""A newer program, for tests of upgrades: it has one more migration than we have, and functions that differ.

    python -m tests.drivers.postgres_newer_program ADDRESS keeps|raises

It upgrades the schema and prints `upgraded`. Then it reserves and finishes a job for each line on its standard input,
and prints the job's id. `raises`: older programs may not use the schema any more.
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.postgres_newer_schema import become_newer


async def main(address: str) -> None:
    become_newer(alone=sys.argv[2] == "raises")
    store = PostgresDriver(f"{address}?migrate=auto")
    await store.open()
    now = datetime.now(UTC)
    await store.enqueue([JobRecord(id="by the new one", type="t")], now)
    print("upgraded", flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        held = await store.reserve(["default"], now, timedelta(seconds=60), 1, "new")
        assert await store.settle([Ack(each.lease) for each in held], now) == [None] * len(held)
        print(",".join(each.job.id for each in held), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
