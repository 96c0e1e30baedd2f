"""A worker whose machine has its clock set: python -m tests.drivers.clock_child FILE FOLDER

Each job of `hold` writes a line when it starts, and ends when the pipe `go` is written to. There is a slot each second,
whose job writes it down.
"""

import asyncio
import os
import sys
from pathlib import Path

from taskharbor import Harbor, JobContext


def main(dsn: str, folder: Path) -> None:
    harbor = Harbor(dsn)

    @harbor.task(name="hold")
    async def hold(ctx: JobContext) -> None:
        with (folder / "starts").open("a", encoding="utf-8") as file:
            file.write(f"{ctx.job.id}\n")
        await asyncio.to_thread((folder / "go").read_bytes)  # a pipe: open() waits for its writer

    @harbor.task(name="tick", queue="ticks")
    def tick(ctx: JobContext) -> None:
        assert ctx.slot is not None
        with (folder / "ticks").open("a", encoding="utf-8") as file:
            file.write(f"{ctx.slot.timestamp():.0f}\n")

    harbor.schedule("tick", tick.s(), every=1, overlap="allow")
    asyncio.run(harbor.worker(concurrency=3, name=f"w{os.getpid()}").arun())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
