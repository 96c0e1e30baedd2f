"""An application beside the workers: `python -m tests.everyday.application SEED`. It ends at the end of its input.

It enqueues in every way that an application has: from synchronous and asynchronous code, on new event loops, from
threads, from forked children, from harbors that it opens and closes, one and many at once, for later, under keys, in
workflows, and on SQL stores in transactions of its own that it commits or rolls back; and it cancels. Before a call it
notes what it sends, after it what was acknowledged. TASKHARBOR_DSN and JOURNAL come with the environment.
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

from taskharbor import Harbor, WrongState
from taskharbor.flow import chain, chord
from tests.everyday.tasks import (
    DSN,
    SQL,
    TASKS,
    books,
    books_slowly,
    flaky,
    grows,
    harbor,
    note,
    path_of,
    plain,
    quick,
    slow,
    totals,
)

PACE = float(os.environ.get("PACE", "0.005"))  # seconds from one call to the next


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

    def acknowledged(self, numbers: list[int], *ids: str) -> None:
        for place, n in enumerate(numbers):
            note("stored", n, *ids[place : place + 1])

    # Ways to enqueue

    def synchronously(self) -> None:
        numbers = self.next()
        handle = self.chance.choice(TASKS).enqueue(n=numbers[0])
        self.acknowledged(numbers, handle.id)

    def many_at_once(self) -> None:
        numbers = self.next(self.chance.randint(2, 20))
        handles = harbor.enqueue_many([self.chance.choice(TASKS).s(n=n) for n in numbers])
        self.acknowledged(numbers, *(handle.id for handle in handles))

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
            self.acknowledged([n], plain.enqueue(n=n).id)

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

    def later(self) -> None:
        numbers = self.next(2)
        for n in numbers:
            task = self.chance.choice(TASKS).options(delay=self.chance.random())
            self.acknowledged([n], task.enqueue(n=n).id)

    def under_a_key(self) -> None:
        """The same job from two threads at once, and once more afterwards: it is one job."""
        numbers = self.next()
        task = self.chance.choice(TASKS).options(idempotency_key=f"key {numbers[0]}")
        found: list[str] = []
        threads = [threading.Thread(target=lambda: found.append(task.enqueue(n=numbers[0]).id)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.append(task.enqueue(n=numbers[0]).id)
        assert len(found) == 3
        assert len(set(found)) == 1, "one key, several jobs"
        self.acknowledged(numbers, found[0])

    def in_a_group(self) -> None:
        numbers = self.next(3)
        one_by_one = slow.options(group=f"group {self.chance.randrange(5)}", priority=self.chance.randrange(3))
        handles = harbor.enqueue_many([one_by_one.s(n=n) for n in numbers])
        self.acknowledged(numbers, *(handle.id for handle in handles))

    # Workflows

    def as_a_chain(self) -> None:
        numbers = self.next(3)
        first, second, third = numbers
        chain(quick.s(n=first), plain.s(n=second), flaky.s(n=third)).enqueue()
        self.acknowledged(numbers)

    def as_a_chord(self) -> None:
        numbers = self.next(3)
        first, second, last = numbers
        chord([quick.s(n=first), plain.s(n=second)], totals.s(n=last)).enqueue()
        self.acknowledged(numbers)

    def that_grows(self) -> None:
        numbers = self.next(3)
        grows.enqueue(n=numbers[0], more=numbers[1])
        self.acknowledged(numbers)

    # Transactions

    def in_a_transaction(self) -> None:
        if not SQL:
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

    def that_books(self) -> None:
        numbers = self.next(2)
        handle = self.chance.choice((books, books_slowly)).enqueue(n=numbers[0], more=numbers[1])
        self.acknowledged(numbers, handle.id)
        note("books", numbers[0])

    # Cancelling

    def cancelled_in_time(self) -> None:
        numbers = self.next()
        handle = plain.options(delay=3600).enqueue(n=numbers[0])
        handle.cancel()
        note("cancelled", numbers[0], handle.id)

    def perhaps_cancelled(self) -> None:
        numbers = self.next()
        handle = slow.enqueue(n=numbers[0])
        note("doubtful", numbers[0])
        try:
            handle.cancel()
        except WrongState:
            pass  # it has run already

    def run(self) -> None:
        ways: list[Callable[[], None]] = [
            *[self.synchronously] * 6,
            *[self.many_at_once] * 3,
            self.on_a_new_loop,
            self.on_threads,
            self.in_a_forked_child,
            self.on_a_harbor_of_its_own,
            self.later,
            self.under_a_key,
            self.in_a_group,
            self.as_a_chain,
            self.as_a_chord,
            self.that_grows,
            *[self.in_a_transaction] * 2,
            *[self.that_books] * 2,
            self.cancelled_in_time,
            self.perhaps_cancelled,
        ]
        self.chance.shuffle(ways)  # each way at least once, in an order that the seed decides
        turn = 0
        while not asked_to_end() or turn < len(ways):
            (ways[turn] if turn < len(ways) else self.chance.choice(ways))()
            turn += 1
        harbor.close()


def connect() -> Any:
    """How the application reaches its own tables in the same database."""
    return sqlite3.connect(path_of(DSN), timeout=30) if DSN.startswith("sqlite") else psycopg.connect(DSN)


def asked_to_end() -> bool:
    """Whether standard input has ended. The program that started it closes that input."""
    return bool(select.select([sys.stdin], [], [], PACE)[0])


if __name__ == "__main__":
    Application(int(sys.argv[1]), int(sys.argv[2])).run()
