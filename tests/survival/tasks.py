"""The tasks whose executions the rows count, on any harbor. Each execution is noted when it begins and when it ends."""

import asyncio
import os
import re
import resource
import signal
import time
from pathlib import Path
from typing import Any

from taskharbor import Fixed, Harbor, JobContext, Unrecoverable
from taskharbor.flow import chord
from tests.survival.journal import Pen
from tests.survival.journaled import Failpoint

MEMORY = 1 << 29  # bytes that the handler which eats memory may still get


class Tasks:
    """Declares the tasks. `folder` holds the journal, and the files that a gate waits for. `hold`: the name of a file
    without which `work` does not end."""

    def __init__(self, harbor: Harbor, folder: str, failpoint: Failpoint | None = None, hold: str = "") -> None:
        self.pen = pen = Pen(folder)
        self.folder = Path(folder)

        @harbor.task(name="work", max_attempts=3, retry=Fixed(0))
        async def work(ctx: JobContext, n: int, seconds: float = 0.0) -> int:
            pen.note("start", n, ctx.job.id, ctx.fence)
            if failpoint is not None:
                failpoint.reached("handler", "in", pen)
            if seconds:
                await asyncio.sleep(seconds)
            while hold and not (self.folder / hold).exists():
                await asyncio.sleep(0.02)
            pen.note("end", n, ctx.job.id, ctx.fence)
            return n

        @harbor.task(name="gate", max_attempts=3)
        async def gate(ctx: JobContext, n: int, name: str) -> int:
            """Runs until there is a file of that name."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            while not (self.folder / name).exists():
                await asyncio.sleep(0.02)
            pen.note("end", n, ctx.job.id, ctx.fence)
            return n

        @harbor.task(name="block", max_attempts=3)
        async def block(ctx: JobContext, n: int, how: str, seconds: float) -> int:
            """Blocks the event loop, and with it the interpreter or not."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                BLOCKS[how](min(1.0, seconds))
            pen.note("end", n, ctx.job.id, ctx.fence)
            return n

        @harbor.task(name="poison")
        def poison(ctx: JobContext, n: int, how: str) -> None:
            """Takes its process down."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            POISONS[how]()

        @harbor.task(name="member", max_attempts=1)
        async def member(ctx: JobContext, n: int, i: int = 0, die: str = "") -> int:
            """With `die`, the name of a file: it dies until there is such a file."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            if die and not (self.folder / die).exists():
                raise Unrecoverable("this member dies")
            await asyncio.sleep(0)
            pen.note("end", n, ctx.job.id, ctx.fence)
            return i

        @harbor.task(name="last")
        async def last(
            ctx: JobContext, parts: list[Any], n: int, first: int = 0, after: list[int] | None = None
        ) -> int:
            """The finalizer: it gets the result of every member; their numbers begin at `first`, or are `after`."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            pen.note("joined", n, after or list(range(first, first + len(parts))))
            pen.note("end", n, ctx.job.id, ctx.fence)
            return len(parts)

        @harbor.task(name="spread")
        async def spread(ctx: JobContext, n: int, size: int) -> Any:
            """Returns a workflow: its members have the numbers after n, its finalizer the one behind them."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            pen.note("end", n, ctx.job.id, ctx.fence)
            members = [member.s(n=n + 1 + i, i=i) for i in range(size)]
            return chord(members, last.s(n=n + 1 + size, first=n + 1))

        @harbor.task(name="odd", max_attempts=1)
        async def odd(ctx: JobContext, n: int, text: str, how: str, times: int = 1) -> str:
            """Ends with a text that is hard to store: as its result, as its error, or as an error without one."""
            pen.note("start", n, ctx.job.id, ctx.fence)
            pen.note("end", n, ctx.job.id, ctx.fence)
            if how == "result":
                return text * times
            if how == "silent":
                raise Silent
            raise RuntimeError(text * times)

        self.work, self.gate, self.block, self.poison = work, gate, block, poison
        self.member, self.last, self.spread, self.odd = member, last, spread, odd


class Silent(Exception):
    """An exception whose text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("there is no text")


def _eat_memory() -> None:
    """Grow until the kernel refuses, and end as a library in C does whose allocation failed."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    eaten = []
    try:
        while True:
            eaten.append(bytearray(1 << 24))
    except MemoryError:
        os.abort()


def _sort(seconds: float) -> None:
    sorted(range(300_000, 0, -1), key=lambda n: (n * 2_654_435_761) % 4_294_967_296)


POISONS = {"SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL), "abort": os.abort, "memory": _eat_memory}
BLOCKS = {
    "regular expression": lambda seconds: re.match(r"(a+)+$", "a" * 24 + "b"),
    "sort": _sort,
    "blocking sleep": time.sleep,
}
