"""A worker that is killed at any moment: `python -m tests.schedules.killed_worker DSN JOURNAL`.

It prints its name, and fires and runs a job for each second until it is killed.
"""

import os
import sys

from taskharbor import Harbor, JobContext


def program(dsn: str) -> Harbor:
    """The harbor of the worker, and of the test that looks at its store."""
    harbor = Harbor(dsn)

    @harbor.task(name="tick", max_attempts=100)
    async def tick(ctx: JobContext) -> str:
        assert ctx.slot is not None
        return f"{ctx.slot.isoformat()} {os.getpid()}"

    harbor.schedule("tick", tick.s(), every=1, catch_up="all", overlap="allow")
    return harbor


def main() -> None:
    worker = program(sys.argv[1]).worker(concurrency=8, max_lost=1000, poll_interval=0.2)
    print(worker.name, flush=True)
    worker.run()


if __name__ == "__main__":
    main()
