"""TaskHarbor on any store, as a user gets it: Worker and Client with their defaults, coroutine handlers.

`process` times the whole of `worker.arun(until_empty=True)`, its start and stop included. `process-wide` is the same
with a hundred slots instead of sixteen, as many as the hand-written loop claims at a time. `members` times nothing but
the calls of `settle` for the members of groups, each of which a finalizer waits for.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from bench import meter
from bench.meter import Measured, Order
from taskharbor import Client, JobRequest, Worker
from taskharbor.drivers.base import Driver
from taskharbor.drivers.registry import open_driver
from taskharbor.model.ids import new_id
from taskharbor.model.job import JobRecord
from taskharbor.model.outcome import Ack
from taskharbor.model.times import to_ms

TYPE = "bench:noop"
WIDE = 100
SETTLED = 100  # outcomes in one call of `settle`
LEASE = timedelta(minutes=10)  # of the members: all of them are reserved before the first is settled
RELAXED = {"sqlite": "synchronous=normal", "postgresql": "reserve=unflushed"}


async def noop() -> None:
    """The job."""


def _dsn(order: Order) -> str:
    return f"{order.address}?{RELAXED[order.address.partition(':')[0]]}" if order.relaxed else order.address


async def _fill(client: Client, jobs: int) -> None:
    for size in meter.batches(jobs):
        await client.aenqueue_many([JobRequest(type=TYPE)] * size)


async def process(order: Order) -> Measured:
    """Jobs enqueued beforehand, worked off by one worker until none is left."""
    return await _worked_off(order, Worker(_dsn(order)))


async def process_wide(order: Order) -> Measured:
    """The same with a hundred slots."""
    return await _worked_off(order, Worker(_dsn(order), concurrency=WIDE))


async def _worked_off(order: Order, worker: Worker) -> Measured:
    async with _client(order) as client:
        await _fill(client, order.jobs)
    worker.register(TYPE, noop)
    with meter.Watch(order.server) as watch:
        await worker.arun(until_empty=True)
    return watch.sample(order.jobs)


async def backlog(order: Order) -> Measured:
    """The first jobs of a queue in which more wait behind them. Those that run before the worker stops are
    counted as well."""
    async with _client(order) as client:
        await _fill(client, order.jobs)
    worker, ran = Worker(_dsn(order)), 0

    async def counted() -> None:
        nonlocal ran
        ran += 1
        if ran == order.jobs:
            worker.stop()

    worker.register(TYPE, counted)
    with meter.Watch(order.server) as watch:
        await worker.arun()
    return watch.sample(ran)


async def enqueue_one(order: Order) -> Measured:
    """One call of the client for each job."""
    async with _client(order) as client:
        await client.aenqueue(JobRequest(type=TYPE))  # opens the driver
        with meter.Watch(order.server) as watch:
            for _ in range(order.jobs):
                await client.aenqueue(JobRequest(type=TYPE))
    return watch.sample(order.jobs)


async def enqueue_many(order: Order) -> Measured:
    """One call of the client for a thousand jobs."""
    async with _client(order) as client:
        await client.aenqueue(JobRequest(type=TYPE))
        with meter.Watch(order.server) as watch:
            for size in meter.batches(order.jobs):
                await client.aenqueue_many([JobRequest(type=TYPE) for _ in range(size)])
    return watch.sample(order.jobs)


async def latency(order: Order) -> Measured:
    """Client here, worker in another process."""
    async with _client(order) as client:
        with meter.idle_worker(order) as picks:
            for _ in picks.turns():
                await client.aenqueue(JobRequest(type=TYPE))
    return picks.sample()


async def serve(order: Order) -> None:
    """The worker of `latency`."""
    meter.tell_picks()
    worker = Worker(_dsn(order))
    worker.register(TYPE, meter.ajob)
    await worker.arun()


async def members(order: Order) -> Measured:
    """What it costs to settle the members of groups of `order.group`; the finalizers are released on the way."""
    driver = open_driver(_dsn(order))
    await driver.open()
    await _groups(driver, order)
    leases = []
    while batch := await driver.reserve(("default",), await driver.server_time(), LEASE, SETTLED, "bench"):
        leases += [each.lease for each in batch if each.job.type == TYPE]
    now, watch = await driver.server_time(), meter.Watch(order.server)
    with watch:
        for start in range(0, len(leases), SETTLED):
            answers = await driver.settle([Ack(lease) for lease in leases[start : start + SETTLED]], now)
            assert answers.count(None) == len(answers), answers
    await driver.close()
    return watch.sample(len(leases))


async def _groups(driver: Driver, order: Order) -> None:
    """Groups, each with a job that depends on all its members, stored some thousand jobs at a time."""
    now, waiting = await driver.server_time(), list[JobRecord]()
    for start in range(0, order.jobs, order.group):
        flow = new_id(to_ms(now))
        group = [
            JobRecord(id=new_id(to_ms(now)), type=TYPE, flow_id=flow)
            for _ in range(min(order.group, order.jobs - start))
        ]
        final = JobRecord(
            id=new_id(to_ms(now)), type="bench:final", flow_id=flow, depends_on=tuple(job.id for job in group)
        )
        waiting += [*group, final]
        if len(waiting) >= meter.BATCH:
            await driver.enqueue(waiting, now)
            waiting.clear()
    if waiting:
        await driver.enqueue(waiting, now)


class _client:
    """A client that is closed in the end."""

    def __init__(self, order: Order) -> None:
        self._client = Client(_dsn(order))

    async def __aenter__(self) -> Client:
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()


MODES: dict[str, meter.Mode] = {
    "process": process,
    "process-wide": process_wide,
    "backlog": backlog,
    "enqueue-one": enqueue_one,
    "enqueue-many": enqueue_many,
    "latency": latency,
    "serve": serve,
    "members": members,
}

if __name__ == "__main__":
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    meter.main(MODES)
