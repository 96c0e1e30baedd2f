"""What the tests' child processes do: `python -m tests.drivers.crash_child ROLE DSN …`. They speak in lines."""

import asyncio
import os
import sys
from datetime import timedelta
from typing import Any

from taskharbor import Worker
from taskharbor.drivers import open_driver


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def reserve_and_hang(dsn: str) -> None:
    """Take a job under a lease of a second, say so, and wait to be killed."""
    driver = open_driver(dsn)
    await driver.open()
    held = await driver.reserve(["default"], await driver.server_time(), timedelta(seconds=1), 1, "doomed")
    say(held[0].job.id)
    await asyncio.Event().wait()


async def work(dsn: str, journal: str, lease: str) -> None:
    """A worker that writes down what it runs, line by line, until it is killed."""
    queues = ["default", "other"]
    # What kills jobs is not looked for here. On a busy machine a short lease may end once more: no job is to die of it.
    worker = Worker(open_driver(dsn), queues=queues, concurrency=8, lease=float(lease), poll_interval=0.1, max_lost=100)
    await run_with_journal(worker, journal)


async def run_with_journal(worker: Worker, journal: str) -> None:
    """Run a worker whose handler writes a line into the journal for each job."""
    file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def handler(n: int) -> None:
        os.write(file, f"{n} {os.getpid()}\n".encode())
        await asyncio.sleep(0)

    worker.register("t", handler)
    say("ready")
    await worker.arun()


ROLES = {role.__name__: role for role in (reserve_and_hang, work)}

if __name__ == "__main__":
    role: Any = ROLES[sys.argv[1]]
    asyncio.run(role(*sys.argv[2:]))
