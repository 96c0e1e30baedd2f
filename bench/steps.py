"""What each step of a job's way costs, measured one by one: where to look before making anything faster.

The rest (fetcher, settler, turns of the event loop) is what a whole worker costs beyond these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from statistics import median

from bench import ours
from bench.ours import TYPE, noop
from bench.sample import Sample, Stopwatch
from taskharbor import Client, JobRequest
from taskharbor.drivers.base import Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.clock import StoreClock
from taskharbor.model.codec import JsonCodec
from taskharbor.model.events import Observers
from taskharbor.model.lease import Reserved
from taskharbor.model.outcome import Ack
from taskharbor.observe.log import LogObserver
from taskharbor.tasks.handler import Handler, HandlerRegistry
from taskharbor.tasks.prepare import prepare
from taskharbor.worker.delivery import OutcomeQueue
from taskharbor.worker.executor import Executor
from taskharbor.worker.losses import Losses
from taskharbor.worker.outage import Outage
from taskharbor.worker.parts import WorkerParts
from taskharbor.worker.settings import settings

ROUNDS = 5
JOBS = 20_000
SLOTS = 16  # what a worker asks for at a time
LEASE = timedelta(seconds=30)

Step = Callable[[int], Awaitable[Sample]]


async def _whole(jobs: int) -> Sample:
    return await ours.process(jobs, 0)


async def _reserve(jobs: int) -> Sample:
    driver = await _filled(jobs)
    now = _now()
    with Stopwatch() as watch:
        while await driver.reserve(("default",), now, LEASE, SLOTS, "bench"):
            pass
    return watch.sample(jobs)


async def _settle(jobs: int) -> Sample:
    driver = await _filled(jobs)
    batches = await _reserved(driver)
    outcomes = [[Ack(reserved.lease) for reserved in batch] for batch in batches]
    now = _now()
    with Stopwatch() as watch:
        for batch in outcomes:
            await driver.settle(batch, now)
    return watch.sample(jobs)


async def _executor(jobs: int) -> Sample:
    batches = await _reserved(await _filled(jobs))
    handlers, clock, observers = HandlerRegistry(), StoreClock(), Observers((LogObserver(),))
    handlers.add(Handler(TYPE, noop))
    parts = WorkerParts(
        settings=settings(name="bench"),
        driver=open_driver(ours.DSN),
        handlers=handlers,
        clock=clock,
        observers=observers,
        outage=Outage("bench", clock, observers),
        outcomes=OutcomeQueue(jobs),
    )
    executor = Executor(parts, Losses(parts))
    with Stopwatch() as watch:
        for batch in batches:
            executor.start(batch)
            await asyncio.sleep(0)
            for delivery, _ in parts.outcomes.take(jobs):
                del parts.held[delivery.lease.token]
    await executor.stop(asyncio.Event())
    return watch.sample(jobs)


async def _bare(jobs: int) -> Sample:
    return await ours.bare(jobs, 0)


async def _enqueue(jobs: int) -> Sample:
    return await ours.enqueue_one(jobs, 0)


async def _call(jobs: int) -> Sample:
    codec = JsonCodec()
    with Stopwatch() as watch:
        for _ in range(jobs):
            JobRequest(type=TYPE).call(codec)
    return watch.sample(jobs)


async def _prepare(jobs: int) -> Sample:
    call, now = JobRequest(type=TYPE).call(JsonCodec()), _now()
    with Stopwatch() as watch:
        for _ in range(jobs):
            prepare(call, now, "default")
    return watch.sample(jobs)


async def _store(jobs: int) -> Sample:
    driver, records, now = open_driver(ours.DSN), ours._records(jobs), _now()
    with Stopwatch() as watch:
        for record in records:
            await driver.enqueue([record], now)
    return watch.sample(jobs)


WORKER: dict[str, Step] = {"reserve": _reserve, "executor": _executor, "settle": _settle}
CLIENT: dict[str, Step] = {"request → call": _call, "call → record": _prepare, "driver.enqueue": _store}


def report(rounds: int = ROUNDS, jobs: int = JOBS) -> str:
    """A table of µs a job."""
    lines = [f"µs of processor time a job, median of {rounds} rounds, {SLOTS} jobs at a time"]
    for title, whole, parts in (("a worker", _whole, WORKER), ("client.aenqueue", _enqueue, CLIENT)):
        costs = {name: _cost(step, rounds, jobs) for name, step in {title: whole, **parts}.items()}
        total = costs.pop(title)
        lines += ["", f"{title:<24}{total:6.2f}"]
        lines += [f"  {name:<22}{cost:6.2f}" for name, cost in costs.items()]
        lines.append(f"  {'the rest':<22}{total - sum(costs.values()):6.2f}")
    lines += ["", f"{'a bare asyncio task':<24}{_cost(_bare, rounds, jobs):6.2f}"]
    return "\n".join(lines)


def _cost(step: Step, rounds: int, jobs: int) -> float:
    return 1e6 * median(sample.cpu / sample.jobs for sample in (asyncio.run(_run(step, jobs)) for _ in range(rounds)))


async def _run(step: Step, jobs: int) -> Sample:
    return await step(jobs)


async def _filled(jobs: int) -> Driver:
    driver = open_driver(ours.DSN)
    client = Client(driver)
    for start in range(0, jobs, ours.BATCH):
        await client.aenqueue_many([JobRequest(type=TYPE)] * min(ours.BATCH, jobs - start))
    return driver


async def _reserved(driver: Driver) -> list[Sequence[Reserved]]:
    batches: list[Sequence[Reserved]] = []
    while batch := await driver.reserve(("default",), _now(), LEASE, SLOTS, "bench"):
        batches.append(batch)
    return batches


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
