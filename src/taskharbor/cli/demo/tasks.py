"""The tasks of the demo: some that succeed, some that fail at first, one that never succeeds, and a CSV import.

They sleep instead of working, so that there is something to see.
"""

from __future__ import annotations

import asyncio
import csv
import random
import time
from itertools import islice

from taskharbor import Exponential, Fixed, Harbor, JobContext
from taskharbor.flow import Flow, chord

CHUNK = 100  # lines
FRAMES = 60
FAILURES = 2  # of each exchange rate, before it is known
ATTEMPTS = 3  # of a charge

harbor = Harbor()  # --dsn names its store


@harbor.task(name="demo.greet", queue="mail")
async def greet(name: str) -> str:
    """A job that succeeds."""
    await asyncio.sleep(random.uniform(0.2, 0.8))
    return f"Hello, {name}"


@harbor.task(name="demo.rate", queue="rates", max_attempts=5, retry=Exponential(base=0.5, maximum=2))
async def rate(ctx: JobContext, currency: str) -> float:
    """A job that fails twice and is retried with a growing delay."""
    await asyncio.sleep(0.2)
    if ctx.job.attempts < FAILURES:
        raise ConnectionError("the bank does not respond")
    return 1.25


@harbor.task(name="demo.charge", queue="billing", max_attempts=ATTEMPTS, retry=Fixed(0.8))
async def charge(customer: str, cents: int) -> None:
    """A job that fails on every attempt and ends in the dead letter queue."""
    await asyncio.sleep(0.2)
    raise ValueError("the card was refused")


@harbor.task(name="demo.newsletter", queue="mail")
async def newsletter(to: str) -> None:
    """A job for later."""


@harbor.task(name="demo.render", queue="video")
async def render(ctx: JobContext, file: str) -> None:
    """A long job that says how far it is. Now and then it meets a file that it cannot read."""
    if random.random() < 0.15:
        raise OSError("unexpected end of file")
    for done in range(0, FRAMES, 4):
        ctx.progress(done, FRAMES, "frames")
        await asyncio.sleep(0.5)


@harbor.task(name="demo.split", queue="import")
def split(path: str) -> Flow[int]:
    """Counts the lines to learn how many chunks there are. The chord it returns takes this job's place."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = sum(1 for _ in csv.reader(file)) - 1
    return chord((load.s(path=path, start=start) for start in range(0, lines, CHUNK)), total.s())


@harbor.task(name="demo.load", queue="csv")
def load(path: str, start: int) -> int:
    """One chunk: the cents of its lines."""
    time.sleep(random.uniform(0.3, 0.9))
    with open(path, newline="", encoding="utf-8") as file:
        return sum(int(row["cents"]) for row in islice(csv.DictReader(file), start, start + CHUNK))


@harbor.task(name="demo.total", queue="import")
def total(sums: list[int]) -> int:
    """Runs once, when every chunk is loaded."""
    return sum(sums)
