"""The limit and TaskHarbor itself: one function a subject, each on a store of its own.

TaskHarbor runs as a user gets it: a Worker with its defaults (16 slots, the heart in a thread, the log observer,
deadlines, tokens, results), coroutine handlers, the client with its defaults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.sample import Sample, Stopwatch
from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers.base import Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord

DSN = "memory://"
TYPE = "bench:noop"
BATCH = 1_000  # jobs in one aenqueue_many
TASKS = 16  # bare tasks at a time: as many as a worker has slots
PAUSE = 0.005  # seconds between two jobs of the latency subject: time enough to be idle again


async def noop() -> None:
    """The job."""


async def echo(value: int) -> int:
    """A job with an argument and a result."""
    return value


# The limit


async def bare(jobs: int, backlog: int) -> Sample:
    """An asyncio task for each job and nothing else: made sixteen at a time, each awaited."""
    create_task = asyncio.get_running_loop().create_task
    with Stopwatch() as watch:
        for made in range(0, jobs, TASKS):
            tasks = [create_task(noop()) for _ in range(min(TASKS, jobs - made))]
            for task in tasks:
                await task
    return watch.sample(jobs)


# Throughput of a worker


async def process(jobs: int, backlog: int) -> Sample:
    """Jobs enqueued beforehand, worked off by one worker until none is left."""
    return await _worked_off(noop, [JobRequest(type=TYPE)] * jobs)


async def process_timeout(jobs: int, backlog: int) -> Sample:
    """The same, each job with a timeout of its own."""
    return await _worked_off(noop, [JobRequest(type=TYPE, timeout=30)] * jobs)


async def process_result(jobs: int, backlog: int) -> Sample:
    """The same with an argument, decoded and checked against its type, and a result, encoded and stored."""
    return await _worked_off(echo, [JobRequest(type=TYPE, payload={"value": number}) for number in range(jobs)])


async def _worked_off(handler: Callable[..., Awaitable[Any]], requests: list[JobRequest]) -> Sample:
    driver = open_driver(DSN)
    client = Client(driver)
    for start in range(0, len(requests), BATCH):
        await client.aenqueue_many(requests[start : start + BATCH])
    worker = Worker(driver.sibling())
    worker.register(TYPE, handler)
    with Stopwatch() as watch:
        await worker.arun(until_empty=True)
    await client.aclose()
    return watch.sample(len(requests))


# Beside a backlog


async def alone(jobs: int, backlog: int) -> Sample:
    """What the next two are compared with: the same way to stop, with nothing beside the jobs."""
    return await _first_of(jobs, [])


async def before_ready(jobs: int, backlog: int) -> Sample:
    """The first jobs of a queue in which `backlog` more wait behind them."""
    return await _first_of(jobs, _records(backlog))


async def beside_scheduled(jobs: int, backlog: int) -> Sample:
    """All due jobs of a queue that holds `backlog` more for later, each at a moment of its own."""
    return await _first_of(jobs, _records(backlog, datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)))


def _records(count: int, first_run_at: datetime | None = None) -> list[JobRecord]:
    now = time.time_ns() // 1_000_000
    records = []
    for number in range(count):
        run_at = None if first_run_at is None else first_run_at + timedelta(milliseconds=number)
        records.append(JobRecord(id=new_id(now), type=TYPE, run_at=run_at))
    return records


async def _first_of(jobs: int, backlog: list[JobRecord]) -> Sample:
    driver = open_driver(DSN)
    first = _records(jobs)
    await _enqueue(driver, first)
    await _enqueue(driver, backlog)
    worker = Worker(driver.sibling())
    left = jobs

    async def counted() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    worker.register(TYPE, counted)
    first.clear()
    backlog.clear()
    with Stopwatch() as watch:
        await worker.arun()
    return watch.sample(jobs - left)  # with those that ran before the worker stopped


async def _enqueue(driver: Driver, records: list[JobRecord]) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for start in range(0, len(records), 10_000):
        await driver.enqueue(records[start : start + 10_000], now)


# Enqueueing


async def enqueue_one(jobs: int, backlog: int) -> Sample:
    """One call of the client for each job."""
    client = Client(open_driver(DSN))
    with Stopwatch() as watch:
        for _ in range(jobs):
            await client.aenqueue(JobRequest(type=TYPE))
    await client.aclose()
    return watch.sample(jobs)


async def enqueue_many(jobs: int, backlog: int) -> Sample:
    """One call of the client for a thousand jobs."""
    client = Client(open_driver(DSN))
    with Stopwatch() as watch:
        for start in range(0, jobs, BATCH):
            await client.aenqueue_many([JobRequest(type=TYPE) for _ in range(min(BATCH, jobs - start))])
    await client.aclose()
    return watch.sample(jobs)


async def through(jobs: int, backlog: int) -> Sample:
    """A job's whole way: enqueued one at a time, then worked off."""
    driver = open_driver(DSN)
    client = Client(driver)
    worker = Worker(driver.sibling())
    worker.register(TYPE, noop)
    with Stopwatch() as watch:
        for _ in range(jobs):
            await client.aenqueue(JobRequest(type=TYPE))
        await worker.arun(until_empty=True)
    await client.aclose()
    return watch.sample(jobs)


# Latency


async def latency(jobs: int, backlog: int) -> Sample:
    """From the call of aenqueue to the first line of the handler, one job at a time, by a worker that is idle."""
    driver = open_driver(DSN)
    client = Client(driver)
    worker = Worker(driver.sibling())
    began = 0.0
    ran = asyncio.Event()

    async def handler() -> None:
        nonlocal began
        began = time.perf_counter()
        ran.set()

    worker.register(TYPE, handler)
    running = asyncio.create_task(worker.arun())
    latencies = []
    for number in range(jobs + 1):
        await asyncio.sleep(PAUSE)
        ran.clear()
        asked = time.perf_counter()
        await client.aenqueue(JobRequest(type=TYPE))
        await ran.wait()
        if number:  # the first one also opens the client's driver
            latencies.append(began - asked)
    worker.stop()
    await running
    await client.aclose()
    return Sample(jobs, latencies=tuple(latencies))
