"""An application beside the workers: `python -m tests.everyday.application SEED`. It ends at the end of its input.

It enqueues in every way that an application has: from synchronous and asynchronous code, on new event loops, from
threads, from forked children, from harbors that it opens and closes, one and many at once, in chains, and on SQL stores
in transactions of its own that it commits or rolls back. Before a call it notes what it sends, after it what was
acknowledged. TASKHARBOR_DSN and JOURNAL come with the environment.
"""

import asyncio
import os
import random
import select
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from taskharbor import Harbor
from taskharbor.flow import chain
from tests.everyday.tasks import TASKS, flaky, harbor, note, plain, quick

DSN = os.environ["TASKHARBOR_DSN"]


class Application:
    """One process of the application; `first` keeps the numbers of several apart."""

    def __init__(self, seed: int, first: int) -> None:
        self.chance = random.Random(seed)
        self.number = first

    def next(self, count: int = 1) -> list[int]:
        numbers = list(range(self.number, self.number + count))
        self.number += count
        for n in numbers:
            note("sent", n)
        return numbers

    def acknowledged(self, numbers: list[int]) -> None:
        for n in numbers:
            note("stored", n)

    # Ways to enqueue

    def synchronously(self) -> None:
        numbers = self.next()
        self.chance.choice(TASKS).enqueue(n=numbers[0])
        self.acknowledged(numbers)

    def many_at_once(self) -> None:
        numbers = self.next(self.chance.randint(2, 20))
        harbor.enqueue_many([self.chance.choice(TASKS).s(n=n) for n in numbers])
        self.acknowledged(numbers)

    def on_a_new_loop(self) -> None:
        numbers = self.next(3)

        async def live() -> None:
            async with harbor:
                await asyncio.gather(*(quick.aenqueue(n=n) for n in numbers))

        asyncio.run(live())
        self.acknowledged(numbers)

    def on_threads(self) -> None:
        numbers = self.next(3)

        def one(n: int) -> None:
            plain.enqueue(n=n)
            self.acknowledged([n])

        threads = [threading.Thread(target=one, args=(n,)) for n in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def in_a_forked_child(self) -> None:
        numbers = self.next(2)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                flaky.enqueue(n=numbers[0])
                quick.enqueue(n=numbers[1])
                self.acknowledged(numbers)
                harbor.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0

    def on_a_harbor_of_its_own(self) -> None:
        numbers = self.next()
        with Harbor(DSN) as own:
            own.task(name="quick")(quick.function).enqueue(n=numbers[0])
        self.acknowledged(numbers)

    def as_a_chain(self) -> None:
        numbers = self.next(3)
        first, second, third = numbers
        chain(quick.s(n=first), plain.s(n=second), flaky.s(n=third)).enqueue()
        self.acknowledged(numbers)

    def in_a_transaction(self) -> None:
        connect = connector()
        if connect is None:
            return self.synchronously()
        numbers = self.next()
        kept = self.chance.random() < 0.7
        connection = connect()
        try:
            plain.options(connection=connection).enqueue(n=numbers[0])
            if kept:
                connection.commit()
                self.acknowledged(numbers)
            else:
                connection.rollback()
                note("undone", numbers[0])
        finally:
            connection.close()
        return None

    def run(self) -> None:
        ways: list[Callable[[], None]] = [
            *[self.synchronously] * 6,
            *[self.many_at_once] * 3,
            self.on_a_new_loop,
            self.on_threads,
            self.in_a_forked_child,
            self.on_a_harbor_of_its_own,
            self.as_a_chain,
            *[self.in_a_transaction] * 2,
        ]
        while not asked_to_end():
            self.chance.choice(ways)()
        harbor.close()


def connector() -> Callable[[], Any] | None:
    """How the application reaches its own tables in the same database, where there are any."""
    if DSN.startswith("sqlite:"):
        path = DSN.removeprefix("sqlite:///").partition("?")[0]
        return lambda: sqlite3.connect(path, timeout=30)
    if DSN.startswith("postgres"):
        return lambda: psycopg.connect(DSN)
    return None


def asked_to_end() -> bool:
    """Whether standard input has ended. The application lives as long as whoever started it wants."""
    return bool(select.select([sys.stdin], [], [], 0.005)[0])


if __name__ == "__main__":
    Application(int(sys.argv[1]), int(sys.argv[2])).run()
