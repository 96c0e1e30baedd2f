"""A consumer in a process of its own, for tests that send it signals.

    python consumer_program.py URL sync|async drain|now

A handler says "started <id>" on stdout, runs until a line comes on stdin or until it is interrupted, and says
"finished <id>" or "interrupted <id>". The process says "left" when `consume` has returned.
"""

import asyncio
import sys
import threading
import time

from taskharbor.omniq import AsyncOmniQ, JobContext, OmniQ

url, colour, how = sys.argv[1:4]
go = threading.Event()


def say(word: str) -> None:
    print(word, flush=True)


def listen() -> None:
    if sys.stdin.readline():
        go.set()


def handler(ctx: JobContext) -> None:
    try:
        say(f"started {ctx.job_id}")
        while not go.is_set():
            time.sleep(0.01)
    except BaseException as error:
        say(f"interrupted {ctx.job_id} {type(error).__name__} {ctx.cancelled.is_set()}")
        raise
    say(f"finished {ctx.job_id}")


async def ahandler(ctx: JobContext) -> None:
    try:
        say(f"started {ctx.job_id}")
        while not go.is_set():
            await asyncio.sleep(0.01)
    except BaseException as error:
        say(f"interrupted {ctx.job_id} {type(error).__name__} {ctx.cancelled.is_set()}")
        raise
    say(f"finished {ctx.job_id}")


async def amain() -> None:
    async with AsyncOmniQ(url) as q:
        await q.consume("jobs", ahandler, drain=how == "drain", heartbeat_interval_s=0.05)


threading.Thread(target=listen, daemon=True).start()
if colour == "sync":
    with OmniQ(url) as q:
        q.consume("jobs", handler, drain=how == "drain", heartbeat_interval_s=0.05)
else:
    asyncio.run(amain())
say("left")
