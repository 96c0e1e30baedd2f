"""What a job costs Redis in bytes: waiting, inflight, done, and dead after one failure; all of it and key by key.

    python -m bench.redis_memory [--jobs 20000] [--dsn redis://…?options]

Without --dsn a server of the tests is started. It must be empty: the figures are `used_memory` before and after. BullMQ
is measured too, where `python -m bench.stores.environments bullmq` has made its environment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

from bench.stores import environments
from taskharbor import Harbor
from taskharbor.drivers import Ack, JobRecord, Reserved
from taskharbor.drivers.redis import RedisDriver
from taskharbor.model.ids import new_id
from taskharbor.model.times import to_ms

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE = timedelta(minutes=5)
PAYLOAD = b'{"to":"ada@example.com","n":12345}'
BATCH = 500
OPTIONS = ("", "?omniq_index=0")


def used(client: Any) -> int:
    client.memory_purge()
    return int(client.info("memory")["used_memory"])


def by_key(client: Any, jobs: int) -> dict[str, int]:
    """Bytes of a job by the kind of key, as the server counts them."""
    sums: Counter[str] = Counter()
    for key in client.scan_iter(count=1000):
        kind = re.sub(r"(:job:|:th:ids:|\{th:ids:0\}:).*", r"\1…", key.decode())
        sums[kind] += client.memory_usage(key, samples=0) or 0  # a key that has expired since
    return {kind: round(total / jobs) for kind, total in sums.most_common() if total >= jobs}


async def measure(dsn: str, jobs: int) -> list[tuple[str, float, dict[str, int]]]:
    """For each state its name, the bytes of a job, and the parts."""
    client = redis.Redis.from_url(dsn.partition("?")[0])
    driver = RedisDriver(dsn + ("&" if "?" in dsn else "?") + "checks=0")
    await driver.open()
    client.flushall()
    await driver.enqueue([JobRecord(id="first", type="mail", payload=PAYLOAD)], NOW)
    await driver.delete(["first"])
    client.script_flush()
    found = []
    try:
        before = used(client)
        for first in range(0, jobs, BATCH):
            moment = NOW + timedelta(milliseconds=first)
            ids = [new_id(to_ms(moment)) for _ in range(BATCH)]
            await driver.enqueue([JobRecord(id=id, type="mail", payload=PAYLOAD) for id in ids], moment)
        found.append(("waiting", (used(client) - before) / jobs, by_key(client, jobs)))
        later = NOW + timedelta(milliseconds=jobs)
        held: list[Reserved] = []
        while len(held) < jobs:
            held += await driver.reserve(["default"], later, LEASE, BATCH, "worker-1")
        found.append(("inflight", (used(client) - before) / jobs, by_key(client, jobs)))
        for first in range(0, jobs, BATCH):
            await driver.settle([Ack(each.lease) for each in held[first : first + BATCH]], later)
        found.append(("done", (used(client) - before) / jobs, by_key(client, jobs)))
    finally:
        await driver.close()
        client.close()
    return found


def measure_dead(dsn: str, jobs: int) -> tuple[str, float, dict[str, int]]:
    """The same for jobs that a worker ran, and that failed: with their error, its place in the code and their trail."""
    harbor = Harbor(dsn + ("&" if "?" in dsn else "?") + "checks=0")

    @harbor.task(name="mail", max_attempts=1)
    def mail(to: str, n: int) -> None:
        raise ValueError("the server said no")

    logging.disable(logging.CRITICAL)
    with redis.Redis.from_url(dsn.partition("?")[0]) as client:
        client.flushall()
        mail.enqueue("ada@example.com", 12345)
        harbor.worker().run(until_empty=True)
        client.flushall()
        client.script_flush()
        before = used(client)
        for _ in range(jobs):
            mail.enqueue("ada@example.com", 12345)
        harbor.worker(concurrency=50).run(until_empty=True)
        harbor.close()
        return "dead", (used(client) - before) / jobs, by_key(client, jobs)


def measure_bullmq(port: int, jobs: int) -> dict[str, int]:
    """Bytes of a job of BullMQ by state."""
    found: dict[str, int] = {}
    for end in ("done", "dead"):
        command = [*environments.command("", "bullmq")[:1], "bench/peers/node/bullmq-memory.mjs", str(port), str(jobs)]
        done = subprocess.run(
            [*command, end],
            cwd=environments.ROOT,
            env=environments.variables("bullmq"),
            capture_output=True,
            text=True,
            check=True,
        )
        found |= dict(json.loads(line) for line in done.stdout.splitlines())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--dsn")
    given = parser.parse_args()
    if given.dsn is None:
        from tests.servers.redis import Server

        server = Server()
        addresses = [f"{server.url}{options}" for options in OPTIONS]
    else:
        addresses = [given.dsn]
    for address in addresses:
        print(f"{address.partition('?')[2] or 'no options'}, {given.jobs} jobs, {len(PAYLOAD)} bytes of payload")
        for state, total, parts in [
            *asyncio.run(measure(address, given.jobs)),
            measure_dead(address, given.jobs // 10),
        ]:
            told = ", ".join(f"{kind} {size}" for kind, size in parts.items())
            print(f"  {state:<9}{total:6.0f} bytes a job   {told}")
    if given.dsn is None and environments.ready("bullmq"):
        print(f"BullMQ {environments.version('bullmq')}: {measure_bullmq(server.port, given.jobs)} bytes a job")


if __name__ == "__main__":
    main()
