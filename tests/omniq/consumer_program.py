"""A consumer in a process of its own, for tests that send it signals.

    python consumer_program.py URL sync|async drain|now

A handler says "started <id>" on stdout, runs until it is told to end (the list `go` has an element) or is interrupted,
and says "finished <id>" or "interrupted <id>". The process says "left" when `consume` has returned.
"""

import asyncio
import sys
import time

import redis
import redis.asyncio

from taskharbor.omniq import AsyncOmniQ, JobContext, OmniQ

url, colour, how = sys.argv[1:4]


def say(word: str) -> None:
    print(word, flush=True)


def handler(ctx: JobContext) -> None:
    say(f"started {ctx.job_id}")
    try:
        with redis.Redis.from_url(url) as client:
            while not client.lpop("go"):
                time.sleep(0.01)
    except BaseException as error:
        say(f"interrupted {ctx.job_id} {type(error).__name__} {ctx.cancelled.is_set()}")
        raise
    say(f"finished {ctx.job_id}")


async def ahandler(ctx: JobContext) -> None:
    say(f"started {ctx.job_id}")
    try:
        async with redis.asyncio.Redis.from_url(url) as client:
            while not await client.lpop("go"):
                await asyncio.sleep(0.01)
    except BaseException as error:
        say(f"interrupted {ctx.job_id} {type(error).__name__} {ctx.cancelled.is_set()}")
        raise
    say(f"finished {ctx.job_id}")


async def amain() -> None:
    async with AsyncOmniQ(url) as q:
        await q.consume("jobs", ahandler, drain=how == "drain")


if colour == "sync":
    with OmniQ(url) as q:
        q.consume("jobs", handler, drain=how == "drain")
else:
    asyncio.run(amain())
say("left")
