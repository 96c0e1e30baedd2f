"""The application of the tests that type commands: it counts, traces and logs as users do."""

import logging
import os

from prometheus_client import Counter

from taskharbor import Fixed, Harbor, JobContext

harbor = Harbor()  # the store is the command line's
letters = Counter("application_letters", "What a handler counts itself.")


@harbor.task(name="send", queue="mail", max_attempts=2, retry=Fixed(0))
def send(ctx: JobContext, to: str, fail: bool = False) -> int:
    logging.getLogger("application").info("sending")
    letters.inc()
    if fail:
        raise ValueError(to)
    return os.getpid()


@harbor.task(name="forward", queue="mail")
async def forward(to: str) -> None:
    await send.aenqueue(to)


@harbor.task(name="die", queue="mail")
def die() -> None:
    os._exit(9)
