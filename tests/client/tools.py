"""What the client's tests share: waits that are over at once, drivers that tell what was asked of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from taskharbor.client import Client
from taskharbor.drivers.base import Driver
from taskharbor.drivers.memory import MemoryDriver
from taskharbor.model.job import JobRecord
from taskharbor.model.lease import Enqueued
from taskharbor.model.outcome import Ack, Cancelled, Fail, Outcome


class Waits:
    """Replaces waiting: every wait is noted and ends at once. Its time stands still in between."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.began = time.monotonic()  # the clock of event loops, which end calls at their deadlines

    def time(self) -> float:
        return self.began + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if asyncio._get_running_loop() is not None:  # a blocking call has none, and must not suspend
            await asyncio.sleep(0)


class Watched(MemoryDriver):
    """A memory driver that notes, for itself and all its siblings, who opened, closed and enqueued."""

    def __init__(self, dsn: str = "memory://", log: list[tuple[Any, ...]] | None = None) -> None:
        super().__init__(dsn)
        self.log = [] if log is None else log
        self.failing = 0

    async def open(self) -> None:
        self.log.append(("open", self, asyncio.get_running_loop()))
        await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            raise OSError("not now")

    async def close(self) -> None:
        self.log.append(("close", self, asyncio.get_running_loop()))

    def sibling(self) -> Watched:
        other = Watched(log=self.log)
        other.store = self.store
        return other

    async def enqueue(self, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        self.log.append(("enqueue", self, asyncio.get_running_loop(), len(jobs)))
        return await super().enqueue(jobs, now)

    def asked(self, verb: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == verb]


class Sql(Watched):
    """Offers to enqueue on a connection of the caller's, which here is a list."""

    async def enqueue_on(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        return self.enqueue_on_sync(connection, jobs, now)

    def enqueue_on_sync(self, connection: Any, jobs: Sequence[JobRecord], now: datetime) -> list[Enqueued]:
        connection.extend(jobs)
        return [Enqueued(job.id, False) for job in jobs]


COLOURS = ("blocking", "awaited")
_TWINS = {"wait": "await_"}  # of the others: the name with an `a` before it


def call(colour: str, client: Client, target: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call a method, or await its twin on a loop of its own; what an iteration gives is a list."""

    async def awaited() -> Any:
        try:
            if method == "iterate":
                return [item async for item in target]
            if method == "watch":
                return [item async for item in target.awatch(*args, **options)]
            return await getattr(target, _TWINS.get(method, f"a{method}"))(*args, **options)
        finally:
            await client.aclose()

    if colour == "awaited":
        return asyncio.run(awaited())
    if method == "iterate":
        return list(target)
    found = getattr(target, method)(*args, **options)
    return list(found) if method == "watch" else found


async def settle(driver: Driver, now: datetime, how: str, queue: str = "default", **details: Any) -> str:
    """Reserve the next job and end it."""
    (reserved,) = await driver.reserve([queue], now, timedelta(seconds=30), 1)
    outcome: Outcome
    if how == "ack":
        outcome = Ack(reserved.lease, **details)
    elif how == "fail":
        outcome = Fail(reserved.lease, details["reason"], 1, now)
    else:
        outcome = Cancelled(reserved.lease, details["reason"])
    assert await driver.settle([outcome], now) == [None]
    return reserved.job.id
