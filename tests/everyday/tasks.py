"""The tasks of the everyday application. What runs is written to a journal, one line in one write.

JOURNAL (environment): the file. Its lines: `sent N`, `stored N`, `undone N` by the application, `ran N PID` here.
"""

import asyncio
import os
import time

from taskharbor import Fixed, Harbor, JobContext

harbor = Harbor()


def note(*words: object) -> None:
    """One line of the journal. Several processes append to it; one write is never torn."""
    file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


@harbor.task(name="quick")
async def quick(n: int) -> int:
    note("ran", n, os.getpid())
    return n


@harbor.task(name="plain", queue="other")
def plain(n: int) -> int:
    note("ran", n, os.getpid())
    time.sleep(0.01)  # work, so that there is something to kill
    return n


@harbor.task(name="slow")
async def slow(n: int) -> int:
    note("ran", n, os.getpid())
    await asyncio.sleep(0.2)  # the same
    return n


@harbor.task(name="flaky", max_attempts=3, retry=Fixed(0))
def flaky(ctx: JobContext, n: int) -> int:
    """Fails at its first attempt."""
    if ctx.job.attempts == 0:
        raise ConnectionError("the first attempt fails")
    note("ran", n, os.getpid())
    return n


TASKS = (quick, plain, slow, flaky)
