"""`taskharbor bench`: measure how fast a store is on this machine.

The jobs do nothing. They are stored in a queue of their own and deleted afterwards. One worker runs them in this
process, with the default settings.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import click

from taskharbor.cli.commands.worker import concurrency_option
from taskharbor.cli.options import number
from taskharbor.cli.output import write_facts, write_json
from taskharbor.cli.target import Target, shared
from taskharbor.client.client import Client
from taskharbor.client.request import JobRequest
from taskharbor.drivers.base import Driver
from taskharbor.worker import Worker

BATCH_JOBS = 1000
SINGLE_JOBS = 200  # enqueued one by one
PICKUP_JOBS = 50  # timed with an idle worker
TYPE = "taskharbor-bench"


@click.command()
@number("--jobs", "How many jobs to run.", high=1_000_000, default=5000)
@concurrency_option("Jobs that the worker runs at once.")
@shared
def bench(target: Target, jobs: int, concurrency: int) -> None:
    """Measure how fast a store is on this machine, with jobs that do nothing and one worker in this process.

    Without --dsn it uses a temporary SQLite file. With --dsn it uses a queue of its own on that store and deletes its
    jobs afterwards. The load is real: think before you run it against production. The figures depend on the machine
    and on what else it is doing.

    \b
    Examples:
      taskharbor bench
      taskharbor bench --dsn postgresql://localhost/app --jobs 20000

    JSON: {"jobs", "enqueue_one", "enqueue_many", "run", "pickup_p50", "pickup_p99"}. Rates in jobs per second,
    pick-up times in milliseconds.
    """
    if target.given is None and target.app is None:
        with tempfile.TemporaryDirectory(prefix="taskharbor-bench-") as folder:
            from taskharbor.drivers import open_driver

            figures = _measured(open_driver(f"sqlite:///{folder}/bench.db"), jobs, concurrency)
    else:
        figures = _measured(target.driver(), jobs, concurrency)
    if target.json:
        write_json({name: round(value, 3) for name, value in asdict(figures).items()})
        return
    write_facts(
        [
            ("enqueue, one at a time", f"{figures.enqueue_one:,.0f} jobs per second"),
            ("enqueue, a thousand at a time", f"{figures.enqueue_many:,.0f} jobs per second"),
            ("run", f"{figures.run:,.0f} jobs per second ({jobs:,} jobs, {concurrency} at once)"),
            ("pick-up by an idle worker", f"{figures.pickup_p50:.1f} ms (p50), {figures.pickup_p99:.1f} ms (p99)"),
        ]
    )


def _measured(driver: Driver, jobs: int, concurrency: int) -> BenchFigures:
    return asyncio.run(run_bench(driver, jobs, concurrency, lambda what: click.echo(f"{what} …", err=True)))


@dataclass(frozen=True)
class BenchFigures:
    """Measured figures. Rates are in jobs per second, times in milliseconds."""

    jobs: int
    enqueue_one: float
    enqueue_many: float
    run: float
    pickup_p50: float
    pickup_p99: float


async def run_bench(driver: Driver, jobs: int, concurrency: int, report: Callable[[str], None]) -> BenchFigures:
    """Measure, then delete the jobs. `report` receives the name of each phase as it begins."""
    queue = f"taskharbor-bench-{secrets.token_hex(4)}"
    client = Client(driver, default_queue=queue)
    try:
        report("enqueueing")
        alone = min(SINGLE_JOBS, jobs)
        one = await _one_by_one(client, alone)
        many = await _in_batches(client, jobs)
        report("running")
        run = await _drain(driver, queue, concurrency, alone + jobs)
        report("timing an idle worker")
        times = sorted([took async for took in _pick_up(driver, client, queue, concurrency)])
    finally:
        await _forget(driver, queue)
        await client.aclose()
    return BenchFigures(
        jobs, one, many, run, times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    )


async def _one_by_one(client: Client, number: int) -> float:
    began = time.perf_counter()
    for _ in range(number):
        await client.aenqueue(JobRequest(type=TYPE))
    return number / (time.perf_counter() - began)


async def _in_batches(client: Client, number: int) -> float:
    began = time.perf_counter()
    for start in range(0, number, BATCH_JOBS):
        await client.aenqueue_many([JobRequest(type=TYPE)] * min(BATCH_JOBS, number - start))
    return number / (time.perf_counter() - began)


async def _drain(driver: Driver, queue: str, concurrency: int, number: int) -> float:
    worker = Worker(driver, queues=[queue], concurrency=concurrency)

    @worker.handler(TYPE)
    async def nothing() -> None: ...

    began = time.perf_counter()
    await worker.arun(until_empty=True)
    return number / (time.perf_counter() - began)


async def _pick_up(driver: Driver, client: Client, queue: str, concurrency: int) -> AsyncIterator[float]:
    """Milliseconds from enqueue to the first line of the handler, in a worker that is otherwise idle."""
    began: asyncio.Queue[float] = asyncio.Queue()
    async with _at_work(driver, queue, concurrency, began):
        for number in range(PICKUP_JOBS + 1):
            asked = time.perf_counter()
            await client.aenqueue(JobRequest(type=TYPE))
            started = await asyncio.wait_for(began.get(), 60)
            if number:  # the first one waits for the worker to start
                yield max(0.0, (started - asked) * 1000)


@asynccontextmanager
async def _at_work(driver: Driver, queue: str, concurrency: int, began: asyncio.Queue[float]) -> AsyncIterator[None]:
    worker = Worker(driver, queues=[queue], concurrency=concurrency)

    @worker.handler(TYPE)
    async def note() -> None:
        began.put_nowait(time.perf_counter())

    running = asyncio.create_task(worker.arun())
    try:
        yield
    finally:
        worker.stop()
        await running


async def _forget(driver: Driver, queue: str) -> None:
    """Delete every job of the queue, whose name is ours alone; also after Ctrl-C."""
    cleaner = driver.sibling()
    try:
        await cleaner.open()
        while found := (await cleaner.list(queue=queue, limit=BATCH_JOBS, now=await cleaner.server_time())).items:
            await cleaner.delete([info.job.id for info in found])
    finally:
        await cleaner.close()
