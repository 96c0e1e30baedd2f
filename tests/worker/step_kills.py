"""A program that runs jobs of 50 steps and is killed at random, again and again, until they are done.

    python -m tests.worker.step_kills DSN JOURNAL KILLS SEED

Each execution is a process of its own, which kills itself: before an effect, between the effect and its memo, amid the
call that stores it, or behind that. Each effect is a line in a journal outside of the store. At the end it prints, as
JSON, the results of the jobs by id, and how many processes were killed.
"""

import asyncio
import json
import os
import random
import signal
import sys
import threading
from typing import Any

from taskharbor import Client, Harbor, JobContext, JobRequest
from taskharbor.drivers import open_driver

STEPS = 50
MOST_POINTS = 12  # that an execution passes before it is killed: two or three steps


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fate:
    """Where an execution is killed: at which point; `amid`: in the next call to the store from there on."""

    def __init__(self, points: int | None, amid: bool) -> None:
        self.points, self.amid = points, amid

    def pass_point(self, *, in_store: bool = False) -> None:
        if self.points is None:
            return
        self.points -= 1
        if self.points <= 0 and (in_store or not self.amid):
            if not in_store:
                die()
            threading.Thread(target=die, daemon=True).start()


def run(dsn: str, journal: str, fate: Fate) -> None:
    """One process with one worker."""
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store: Any = type(open_driver(dsn))
    save = store.save

    async def killed_around(*arguments: Any) -> None:
        fate.pass_point(in_store=fate.amid)
        await save(*arguments)
        fate.pass_point()

    store.save = killed_around
    with Harbor(dsn) as harbor:
        worker = harbor.worker(concurrency=1, max_lost=1_000_000)

        async def fifty(ctx: JobContext) -> list[int]:
            async def effect(number: int) -> int:
                fate.pass_point()
                os.write(file, f"{ctx.job.id} {ctx.fence} {number}\n".encode())
                fate.pass_point()
                return ctx.fence

            return [await ctx.astep(f"step {number}", effect, number) for number in range(STEPS)]

        worker.register("fifty", fifty)
        worker.run(until_empty=True)


async def free(dsn: str, id: str) -> None:
    """Give back what the dead worker held, without waiting for its lease."""
    driver = open_driver(dsn)
    await driver.open()
    try:
        now = await driver.server_time()
        await driver.release((await driver.inspect(id, now)).worker, now)
    finally:
        await driver.close()


def enqueue(dsn: str) -> str:
    with Client(dsn) as client:
        return client.enqueue(JobRequest(type="fifty")).id


def result(dsn: str, id: str) -> Any:
    with Harbor(dsn) as harbor:
        return harbor.job(id).result(timeout=1)


def main(dsn: str, journal: str, kills: int, seed: int) -> None:
    chance, killed = random.Random(seed), 0
    results: dict[str, Any] = {}
    while killed < kills:
        id, is_done = enqueue(dsn), False
        while not is_done:
            points = chance.randint(1, MOST_POINTS) if killed < kills else None
            fate = Fate(points, amid=chance.random() < 0.25)
            child = os.fork()
            if child == 0:
                run(dsn, journal, fate)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            is_done = status == 0
            if not is_done:
                assert os.WIFSIGNALED(status)
                assert os.WTERMSIG(status) == signal.SIGKILL
                killed += 1
                asyncio.run(free(dsn, id))
        results[id] = result(dsn, id)
    print(json.dumps({"killed": killed, "results": results}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
