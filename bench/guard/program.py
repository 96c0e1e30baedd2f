"""What runs under callgrind: `python -m bench.guard.program DSN`. Its instructions are counted section by section.

A section ends with a call of `os.getpgid`, which callgrind watches and nothing else calls. Each way is
run with a few jobs and with many, so that the difference has no start and no stop in it. What could vary from run to
run is fixed: the garbage collector is off, and threads change only where one of them waits.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers import Ack
from taskharbor.drivers.registry import open_driver

TYPE = "guard:echo"
CALLS = (40, 240)
"""Jobs enqueued one by one, in the short section and in the long one."""
BATCHES = (2, 12)
BATCH_JOBS = 100
RESERVED_JOBS = 16
WORKED = (64, 448)
"""Jobs for a worker: multiples of its 16 slots."""
OPEN_S = 600.0
"""The longest that a call may take: the first one imports the driver, which takes long under callgrind."""
LEASE_S = 3600.0
"""No lease is extended under callgrind, which makes everything some fifty times slower."""

ROUNDS = 2
"""How often each section is run. The least counts: how many jobs come together in one call is a matter of chance."""
WAYS = {
    "aenqueue": CALLS,
    "aenqueue_many": tuple(number * BATCH_JOBS for number in BATCHES),
    "enqueue": CALLS,
    "driver": WORKED,
    "work": WORKED,
}
"""Each way a job can go, and its jobs in the short and in the long section."""


def mark() -> None:
    """End of a section."""
    os.getpgid(0)


async def echo(value: int) -> int:
    """The job: an argument to decode and a result to store."""
    return value


def _request(number: int, queue: str = "left") -> JobRequest:
    return JobRequest(type=TYPE, payload={"value": number}, queue=queue)


async def _aenqueue(client: Client, jobs: int) -> None:
    for number in range(jobs):
        await client.aenqueue(_request(number))


async def _aenqueue_many(client: Client, jobs: int) -> None:
    for start in range(0, jobs, BATCH_JOBS):
        await client.aenqueue_many([_request(start + number) for number in range(BATCH_JOBS)])


async def _sections(client: Client, enqueue: Callable[[Client, int], Awaitable[None]], sizes: tuple[int, ...]) -> None:
    await client.aenqueue(_request(0))
    await enqueue(client, BATCH_JOBS)  # prepares the statements
    for jobs in sizes * ROUNDS:
        mark()
        await enqueue(client, jobs)
        mark()


async def _work(dsn: str, client: Client, jobs: int) -> None:
    await client.aenqueue_many([_request(number, "worked") for number in range(jobs)])
    worker = Worker(dsn, queues=["worked"], lease=LEASE_S)
    worker.register(TYPE, echo)
    mark()
    await worker.arun(until_empty=True)
    mark()


async def _awaited(dsn: str) -> None:
    client = Client(dsn, call_timeout=OPEN_S)
    try:
        await _sections(client, _aenqueue, WAYS["aenqueue"])
        await _sections(client, _aenqueue_many, WAYS["aenqueue_many"])
    finally:
        await client.aclose()


async def _drive(dsn: str, client: Client, jobs: int) -> None:
    """What a worker asks of its driver, always with the same number of jobs in a call."""
    await client.aenqueue_many([_request(number, "driven") for number in range(jobs)])
    driver = open_driver(dsn)
    await driver.open()
    now, lease_for = await driver.server_time(), timedelta(seconds=LEASE_S)
    mark()
    while taken := await driver.reserve(["driven"], now, lease_for, RESERVED_JOBS, "guard"):
        refused = await driver.settle([Ack(each.lease, each.job.payload) for each in taken], now)
        assert refused == [None] * len(taken), refused
    mark()
    await driver.close()


async def _worked(dsn: str) -> None:
    client = Client(dsn, call_timeout=OPEN_S)
    try:
        for jobs in WAYS["driver"] * ROUNDS:
            await _drive(dsn, client, jobs)
        for jobs in WAYS["work"] * ROUNDS:
            await _work(dsn, client, jobs)
    finally:
        await client.aclose()


def _blocking(dsn: str) -> None:
    with Client(dsn, call_timeout=OPEN_S) as client:
        client.enqueue(_request(0))
        for jobs in WAYS["enqueue"] * ROUNDS:
            mark()
            for number in range(jobs):
                client.enqueue(_request(number))
            mark()


def main(dsn: str) -> None:
    """Run every way on the store."""
    sys.setswitchinterval(0.2)
    gc.disable()
    asyncio.run(_awaited(dsn))
    _blocking(dsn)
    asyncio.run(_worked(dsn))


if __name__ == "__main__":
    main(sys.argv[1])
