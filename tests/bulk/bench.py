"""A memory store with dead jobs and a manual clock, and operations that a test drives slice by slice."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, cast

from taskharbor import Harbor, State
from taskharbor.client.operation import Operation
from taskharbor.drivers import Fail, JobInfo, JobRecord, open_driver
from taskharbor.drivers.base import Driver
from taskharbor.store.bulk.operations import newest_slice
from taskharbor.store.bulk.runner import OperationRunner
from taskharbor.testing import ManualClock

PATIENCE_S = 30  # real time after which a test gives up waiting
LEASE = timedelta(seconds=30)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine; hanging is a failure, not a wait."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test

    asyncio.run(bounded())


class Store:
    """One memory store, a client of it, and a runner of its operations."""

    def __init__(self, driver: Any = None) -> None:
        self.clock = ManualClock()
        self.driver = cast(Driver, open_driver("memory://") if driver is None else driver)
        self.client = Harbor(self.driver, clock=self.clock)
        self.runner = OperationRunner(self.driver, self.clock, "runner")
        self._made = 0

    async def enqueue(self, count: int = 1, **fields: Any) -> list[str]:
        """Store jobs; their ids are in the order in which they were made."""
        jobs = []
        for _ in range(count):
            self._made += 1
            jobs.append(JobRecord(id=f"job-{self._made:06}", **{"type": "mail", **fields}))
        await self.driver.enqueue(jobs, self.clock.now())
        return [job.id for job in jobs]

    async def kill(self, count: int = 1, *, error_class: str = "ValueError", **fields: Any) -> list[str]:
        """Store jobs and let them die."""
        ids = await self.enqueue(count, **fields)
        await self.die(len(ids), error_class=error_class, queue=fields.get("queue", "default"))
        return ids

    async def die(self, count: int, *, error_class: str = "ValueError", queue: str = "default") -> list[str]:
        """Let the next jobs of a queue die."""
        died: list[str] = []
        while len(died) < count:
            batch = await self.driver.reserve((queue,), self.clock.now(), LEASE, min(count - len(died), 500), "w")
            assert batch, f"expected {count} jobs to reserve, got {len(died)}"
            outcomes = [
                Fail(
                    each.lease,
                    f"failed: {error_class}",
                    1,
                    self.clock.now(),
                    "text",
                    (),
                    error_class,
                    f"fp-{error_class}",
                )
                for each in batch
            ]
            assert await self.driver.settle(outcomes, self.clock.now()) == [None] * len(batch)
            died += [each.job.id for each in batch]
        return died

    async def states(self) -> dict[str, State]:
        """The state of every job that is not a slice."""
        found: dict[str, State] = {}
        async for info in self.client.jobs():
            if info.job.queue != "taskharbor":
                found[info.job.id] = info.state
        return found

    async def info(self, id: str) -> JobInfo:
        return await self.driver.inspect(id, self.clock.now())

    async def finish(self, operation: Operation, *, slices: int = 1_000) -> str:
        """Run slices, moving the clock to each that is due later, until the operation has ended."""
        for _ in range(slices):
            if not await self.runner.run_one():
                progress = await operation.aprogress()
                if progress.status.ended:
                    return str(progress.status)
                await self.to_next_slice(operation)
        raise AssertionError(f"expected an end within {slices} slices, got {await operation.aprogress()}")

    async def to_next_slice(self, operation: Operation) -> None:
        """Move the clock to the moment at which the next slice can run: it is due, or its lease is over."""
        info = await newest_slice(self.client._store.call("test"), operation.id)
        due = info.lease_expires_at if info.state is State.INFLIGHT else info.job.run_at
        if due is not None and due > self.clock.now():
            self.clock.advance((due - self.clock.now()).total_seconds())

    def later(self, seconds: float) -> datetime:
        self.clock.advance(seconds)
        return self.clock.now()
