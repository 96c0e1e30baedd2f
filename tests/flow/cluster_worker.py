"""A worker on queues in different hash slots of a Cluster: `python -m tests.flow.cluster_worker DSN JOURNAL [forks]`.

Each execution is a line of the journal, written when it begins: the id of the job, and the process that runs it. It
says its name and works until it is killed. `forks`: for each number it is sent, a fork of it works until nothing is
left. It counts the commands that it sends to Redis after the last member began, and kills itself (SIGKILL) before the
one of that number; if the number is below zero, it stops itself (SIGSTOP) there.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from taskharbor import Harbor, JobContext
from taskharbor.drivers.redis.pool import RedisPool
from taskharbor.flow import chain, chord
from taskharbor.worker import Worker as _Worker  # noqa: F401 - once, not in every fork
from tests.flow.fork_server import serve

QUEUES = NORTH, SOUTH, EAST = ("north", "south", "east")  # of which each has another primary
ANSWER = 1 + 2 + 3
GROWN = ANSWER + 4 + 5 + 6


class Work:
    """The tasks, on any harbor. `pause`: how long each works, in seconds, and may be killed in it."""

    def __init__(self, harbor: Harbor, journal: str, pause: float = 0) -> None:
        file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.last_began = False

        async def note(ctx: JobContext) -> None:
            os.write(file, f"{ctx.job.id} {os.getpid()}\n".encode())
            await asyncio.sleep(pause)

        @harbor.task(name="member")
        async def member(ctx: JobContext, i: int, last: bool = False) -> int:
            self.last_began = last
            await note(ctx)
            return i

        @harbor.task(name="total")
        async def total(ctx: JobContext, numbers: list[int]) -> int:
            await note(ctx)
            return sum(numbers)

        @harbor.task(name="spread")
        async def spread(ctx: JobContext, start: int) -> Any:
            await note(ctx)
            members = [member.s(start + i).options(queue=queue) for i, queue in enumerate(QUEUES)]
            return chord(members, total.s().options(queue=SOUTH))

        @harbor.task(name="same")
        async def same(ctx: JobContext, number: int) -> int:
            await note(ctx)
            return number

        self.member, self.total, self.spread, self.same = member, total, spread, same

    def nested(self) -> Any:
        """A chord in a chord. A worker that has run what is in north has left one member: the last."""
        last = self.member.s(3, last=True).options(queue=SOUTH)
        inner = chord([self.member.s(2).options(queue=NORTH), last], self.total.s().options(queue=EAST))
        return chord([self.member.s(1).options(queue=NORTH), inner], self.total.s().options(queue=NORTH))

    def grown(self) -> Any:
        """The same with a member that returns a chord, and a step after it all."""
        spread = self.spread.s(4).options(queue=EAST)
        both = chord([self.nested(), spread], self.total.s().options(queue=EAST))
        return chain(both, self.same.s().options(queue=SOUTH))


def mortal(work: Work, point: int) -> None:
    """Let this process die or stop before that command, counted from the beginning of the last member."""
    left, send = abs(point), RedisPool.call

    async def call(self: RedisPool, *commands: Any, **options: Any) -> Any:
        nonlocal left
        left -= work.last_began
        if work.last_began and left == 0:
            os.kill(os.getpid(), signal.SIGKILL if point > 0 else signal.SIGSTOP)
        return await send(self, *commands, **options)

    RedisPool.call = call  # type: ignore[method-assign]  # replaced for the test


def main() -> None:
    dsn, journal, *forked = sys.argv[1:]
    harbor = Harbor(dsn)
    work = Work(harbor, journal, 0 if forked else 0.05)

    def run(point: int) -> None:
        mortal(work, point)
        harbor.worker(queues=QUEUES, concurrency=1, heart="loop").run(until_empty=True)

    if forked:
        serve(run)
    else:
        worker = harbor.worker(queues=QUEUES, concurrency=4, max_lost=1000, poll_interval=0.2)
        print(worker.name, flush=True)
        worker.run()


if __name__ == "__main__":
    main()
