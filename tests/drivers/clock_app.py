"""The app of supervised workers whose machine has its clock set; CLOCK_DSN and CLOCK_FOLDER name its store and folder.

Each job of `hold` writes a line when it starts, and ends when the pipe `go` is written to. There is a slot each second,
whose job writes it down.
"""

import asyncio
import os
import time
from pathlib import Path

from taskharbor import Harbor, JobContext

FOLDER = Path(os.environ["CLOCK_FOLDER"])
harbor = Harbor(os.environ["CLOCK_DSN"])


@harbor.task(name="hold")
async def hold(ctx: JobContext) -> None:
    with (FOLDER / "starts").open("a", encoding="utf-8") as file:
        file.write(f"{ctx.job.id}\n")
    await asyncio.to_thread((FOLDER / "go").read_bytes)  # a pipe: open() waits for its writer


@harbor.task(name="look")
async def look() -> float:
    return time.time()


@harbor.task(name="tick")
def tick(ctx: JobContext) -> None:
    assert ctx.slot is not None
    with (FOLDER / "ticks").open("a", encoding="utf-8") as file:
        file.write(f"{ctx.slot.timestamp():.0f}\n")


harbor.schedule("tick", tick.s(), every=1, catch_up="all", overlap="allow")
