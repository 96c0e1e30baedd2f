"""A worker that is killed at any moment: `python -m tests.flow.random_kill_worker DSN JOURNAL`.

It prints its name and works until it is killed.

Each execution is a line of the journal, written when it begins: what it is, and the process that runs it.
"""

import asyncio
import os
import sys

from taskharbor import Harbor
from taskharbor.flow import chord

MEMBERS = 8


class Work:
    """The tasks, on any harbor."""

    def __init__(self, harbor: Harbor, journal: str) -> None:
        file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def note(what: str) -> None:
            os.write(file, f"{what} {os.getpid()}\n".encode())

        @harbor.task(name="member")
        async def member(n: int, i: int) -> int:
            note(f"member {n} {i}")
            await asyncio.sleep(0.05)  # its work, in which it may be killed
            return n * 100 + i

        @harbor.task(name="last")
        async def last(parts: list[int], n: int) -> int:
            assert parts == [n * 100 + i for i in range(MEMBERS)]
            note(f"last {n} 0")
            await asyncio.sleep(0.05)
            return sum(parts)

        self.member, self.last = member, last

    def chord(self, n: int) -> object:
        return chord((self.member.s(n, i) for i in range(MEMBERS)), self.last.s(n=n))


def main() -> None:
    harbor = Harbor(sys.argv[1])
    Work(harbor, sys.argv[2])
    worker = harbor.worker(concurrency=8, max_lost=1000, poll_interval=0.2)
    print(worker.name, flush=True)
    worker.run()


if __name__ == "__main__":
    main()
