"""Rows of single calls: cancelled at every await, and beside a large backlog."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from taskharbor.drivers import Ack, JobRecord, Retry, WorkerInfo, open_driver
from tests import lanes
from tests.survival.figures import Figures
from tests.survival.registry import ALL, row
from tests.survival.stores import shared_store

LEASE = timedelta(seconds=600)
MOST_STEPS = 400


@row("cancellation", stores=ALL, seconds=60)
def cancellation(store: str, folder: Path) -> Figures:
    """Each call is cancelled after one step of the event loop, two, three, … until it ends before. Then the next call
    gets its own reply."""
    found = shared_store(store, folder)
    rounds = lanes.figure(test=1, chaos=5)
    stride = lanes.figure(test=5, chaos=1)

    async def live() -> tuple[int, int]:
        driver: Any = open_driver(found.dsn)
        await driver.open()
        now = await driver.server_time()
        info = WorkerInfo(worker="w", queues=("default",), running=0, started_at=now)
        await driver.enqueue([JobRecord(id="known", type="t", queue="quiet", priority=7)], now)
        made = cancelled = 0

        def fresh() -> JobRecord:
            nonlocal made
            made += 1
            return JobRecord(id=f"j{made:06}", type="t")

        async def held() -> Any:
            async with asyncio.timeout(60):
                while True:  # a reserve that was cancelled may take the job, before the server has stopped it
                    await driver.enqueue([fresh()], now)
                    if some := await driver.reserve(["default"], now, LEASE, 1, "w"):
                        return some[0].lease

        async def calls() -> dict[str, Callable[[], Awaitable[Any]]]:
            lease, job = await held(), fresh()
            return {
                "enqueue": lambda: driver.enqueue([job], now),
                "reserve": lambda: driver.reserve(["default"], now, LEASE, 1, "w"),
                "extend": lambda: driver.extend([lease], now, LEASE),
                "settle": lambda: driver.settle([Ack(lease)], now),
                "retry": lambda: driver.settle([Retry(lease, run_at=now, attempts=0)], now),
                "inspect": lambda: driver.inspect(job.id, now),
                "counts": lambda: driver.counts(now),
                "list": lambda: driver.list(now=now, limit=3),
                "beat": lambda: driver.beat(info, now),
                "wait": lambda: driver.wait(["empty"], 0.01),
                "release": lambda: driver.release("nobody", now),
                "server_time": driver.server_time,
            }

        names = list(await calls())
        for name in lanes.few(names, ["enqueue", "reserve", "extend", "settle"]) * rounds:
            steps = 1
            while steps < MOST_STEPS:
                task = asyncio.ensure_future((await calls())[name]())
                for _ in range(steps):
                    await asyncio.sleep(0)
                if task.done():
                    task.exception()
                    break
                task.cancel()
                await asyncio.wait([task])
                cancelled += 1
                async with asyncio.timeout(60):
                    known = await driver.inspect("known", now)
                    assert (known.job.id, known.job.priority) == ("known", 7), f"{name}: another call's reply"
                    assert (await driver.server_time()) >= now
                steps += stride
        # Whatever was cancelled: what is stored is whole, and can be worked off.
        async with asyncio.timeout(60):
            done = 0
            await driver.release("w", await driver.server_time())
            while some := await driver.reserve(["default"], await driver.server_time(), LEASE, 500, "w"):
                assert await driver.settle([Ack(each.lease) for each in some], now) == [None] * len(some)
                done += len(some)
        counts = (await driver.counts(now))["default"]
        assert set(counts) <= {"done"}, counts
        await driver.close()
        return cancelled, counts["done"]

    cancelled, done = asyncio.run(live())
    assert cancelled > 5, "hardly a call was cancelled"
    return Figures(jobs=done, faults=cancelled, what="calls cancelled at each step of the event loop",
                   note="the next call got its own reply each time")  # fmt: skip


@row("backlog", seconds=250)
def backlog(store: str, folder: Path) -> Figures:
    """A reserve beside many ready jobs, scheduled ones, and jobs whose lease has ended."""
    ready, scheduled, expired = (
        lanes.figure(1000, chaos=1_000_000),
        lanes.figure(100, chaos=100_000),
        lanes.figure(20, chaos=10_000),
    )
    calls = lanes.figure(test=20, chaos=3000)
    found = shared_store(store, folder)

    async def live() -> tuple[float, float, float]:
        driver: Any = open_driver(found.dsn)
        await driver.open()
        now = await driver.server_time()
        late = now + timedelta(days=1)
        # What a worker took that died: reserved under leases of a millisecond.
        for start in range(0, expired, 1000):
            jobs = [JobRecord(id=f"e{n:08}", type="t") for n in range(start, min(start + 1000, expired))]
            await driver.enqueue(jobs, now)
        for _ in range(0, expired, 1000):
            await driver.reserve(["default"], now, timedelta(milliseconds=1), 1000, "dead")
        # An expired job is due since its expiry: behind what was due by then, ahead of what became due later.
        now += timedelta(seconds=1)
        batch = 5000
        for start in range(0, ready, batch):
            jobs = [JobRecord(id=f"r{n:08}", type="t") for n in range(start, min(start + batch, ready))]
            await driver.enqueue(jobs, now)
        for start in range(0, scheduled, batch):
            jobs = [
                JobRecord(id=f"s{n:08}", type="t", run_at=late) for n in range(start, min(start + batch, scheduled))
            ]
            await driver.enqueue(jobs, now)
        begin, times, waited, seen = time.monotonic(), [], 0.0, 0
        first = now
        for _ in range(calls):
            before = time.perf_counter()
            some = await driver.reserve(["default"], first, LEASE, 10, "w")
            times.append(time.perf_counter() - before)
            if any(each.job.lost for each in some):
                seen += sum(each.job.lost > 0 for each in some)
                waited = max(waited, time.monotonic() - begin)
            await driver.settle([Ack(each.lease) for each in some], first)
        # Under full load all expired ones come back; those of the row's own calls count.
        while seen < expired:
            some = await driver.reserve(["default"], first, LEASE, 1000, "w")
            assert some, f"{expired - seen} expired jobs never came back"
            if any(each.job.lost for each in some):
                seen += sum(each.job.lost > 0 for each in some)
                waited = max(waited, time.monotonic() - begin)
            await driver.settle([Ack(each.lease) for each in some], first)
        await driver.close()
        p99 = statistics.quantiles(times, n=100)[98]
        return p99, statistics.median(times), waited

    p99, median, waited = asyncio.run(live())
    return Figures(jobs=ready + scheduled + expired, faults=expired, what="leases that have ended", recovery=waited,
                   note=f"reserve of 10: median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms")  # fmt: skip
