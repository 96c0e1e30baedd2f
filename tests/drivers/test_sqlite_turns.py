"""Turns at writing: one at a time, in order, without a thread for each waiting call; and none is ever lost."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskharbor import Harbor, JobContext
from taskharbor.drivers import Ack, BackendUnavailable, JobRecord
from taskharbor.drivers.sqlite import SqliteDriver
from taskharbor.drivers.sqlite.turns import Turns
from tests.drivers.sqlite_files import LEASE, NOW

pytestmark = pytest.mark.lane("sqlite")
LONG = 60.0


class Counted(Turns):
    """Counts who has asked."""

    asked = 0

    def ask(self, wake):
        turn = super().ask(wake)
        self.asked += 1
        return turn


async def until(condition) -> None:
    async with asyncio.timeout(LONG):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
def test_each_turn_comes_once_in_order_also_when_some_give_up(seed):
    """Threads and coroutines ask one after the other; some are cancelled or lose their place before it comes."""
    dice = random.Random(seed)
    turns = Counted("file")
    inside, order, asked = [0], [], []

    def work(name):
        assert inside == [0], "two at once"
        inside[0] += 1
        order.append(name)
        inside[0] -= 1
        turns.end()

    async def live():
        loop = asyncio.get_running_loop()
        assert turns.try_take()
        assert not turns.try_take()
        threads: list[threading.Thread] = []
        tasks: list[asyncio.Task[None]] = []
        for name in range(dice.randrange(2, 12)):
            kind = dice.choice(["thread", "coroutine", "cancelled", "left", "closed"])
            before = turns.asked
            if kind == "thread":
                threads.append(threading.Thread(target=takes, args=(name,)))
                threads[-1].start()
                asked.append(name)
            elif kind in {"coroutine", "cancelled"}:

                async def take(name=name):
                    await turns.take_async(LONG)
                    work(name)

                tasks.append(asyncio.create_task(take()))
                if kind == "cancelled":
                    loop.call_later(dice.random() / 100, tasks[-1].cancel)
                else:
                    asked.append(name)
            elif kind == "left":
                woken = threading.Event()
                place = turns.ask(woken.set)
                threads.append(threading.Thread(target=leaves, args=(place, woken)))
                threads[-1].start()
                loop.call_later(dice.random() / 100, turns.give_up, place)
                continue
            else:
                turns.ask(gone)  # its caller is gone
                continue
            if kind != "cancelled":
                await until(lambda before=before: turns.asked > before)
        for _ in range(dice.randrange(20)):
            await asyncio.sleep(0)
        turns.end()
        await asyncio.gather(*tasks, return_exceptions=True)
        for thread in threads:
            await asyncio.to_thread(thread.join, LONG)
            assert not thread.is_alive()

    def takes(name):
        turns.take(LONG)
        work(name)

    def gone():
        raise RuntimeError("Event loop is closed")

    def leaves(place, woken):
        try:
            turns.wait(place, woken, LONG)
        except BackendUnavailable:
            return
        turns.end()

    asyncio.run(live())
    assert [name for name in order if name in asked] == asked
    assert turns.try_take(), "the last turn was never ended"


async def test_patience_counts_for_each_turn_not_for_the_length_of_the_line():
    turns = Turns("file")
    assert turns.try_take()
    with pytest.raises(BackendUnavailable, match=r"has held its write lock for 0\.05 s"):
        await turns.take_async(0.05)
    with pytest.raises(BackendUnavailable, match=r"has held its write lock for 0\.05 s"):
        await asyncio.to_thread(turns.take, 0.05)
    place = turns.ask(lambda: None)
    place.asked_at -= 1000  # it has stood there for long,
    turns._taken_at = time.monotonic()  # but the line has just moved
    woken = threading.Event()
    for later in (turns.end, woken.set):
        threading.Timer(0.05, later).start()
    await asyncio.to_thread(turns.wait, place, woken, LONG)


async def test_transactions_of_coroutines_need_no_thread_of_the_loop(tmp_path):
    """Forty wait at once, and all of the loop's own threads are busy: each has its turn, in order."""
    loop = asyncio.get_running_loop()
    busy = threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, busy.wait)
    driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    await driver.open()
    await driver.enqueue([JobRecord(id=f"{n:02}", type="t") for n in range(40)], NOW)
    held = await driver.reserve(["default"], NOW, LEASE, 40)
    order: list[str] = []

    async def run(lease):
        transaction = driver.transaction(lease)
        async with transaction as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT)")
            connection.execute("INSERT INTO orders VALUES (?)", (lease.job_id,))
            order.append(lease.job_id)
            await asyncio.sleep(0)
        if lease.job_id.endswith("3"):
            await transaction.rollback()
        else:
            assert await transaction.commit(Ack(lease), NOW) is None

    before, begun = set(threading.enumerate()), set[threading.Thread]()
    tasks = [asyncio.create_task(run(item.lease)) for item in held]
    try:
        async with asyncio.timeout(LONG):
            while not all(task.done() for task in tasks):
                begun |= set(threading.enumerate()) - before
                await asyncio.sleep(0)
    finally:
        busy.set()
    await asyncio.gather(*tasks)
    assert order == [item.lease.job_id for item in held]
    assert await driver.counts(NOW) == {"default": {"done": 36, "inflight": 4}}
    begun = {thread for thread in begun if not isinstance(thread, threading.Timer)}  # those of holds that last long
    assert [thread.name for thread in begun] == ["taskharbor-sqlite-transaction"], "of the errands"
    await driver.close()


def test_more_transactions_than_the_loop_has_threads_each_run_once(tmp_path):
    """At the default concurrency, beside plain functions that do the same."""
    harbor = Harbor(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal")
    ran: list[int] = []

    @harbor.task
    async def coroutine(ctx: JobContext, number: int) -> None:
        ran.append(number)
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", (number,))
            await asyncio.sleep(0)

    @harbor.task
    def function(ctx: JobContext, number: int) -> None:
        ran.append(number)
        with ctx.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES (?)", (number,))

    async def live():
        driver = SqliteDriver(f"sqlite:///{tmp_path}/jobs.db")
        await driver.open()
        await driver.database.write(lambda session: session.execute("CREATE TABLE orders (number INTEGER)"))
        await harbor.aenqueue_many([(function if n % 4 == 0 else coroutine).s(number=n) for n in range(64)])
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        async with asyncio.timeout(LONG):
            await harbor.worker().arun(until_empty=True)
        rows = await driver.database.read(lambda session: session.all("SELECT number FROM orders ORDER BY number"))
        assert [number for (number,) in rows] == list(range(64))
        await driver.close()
        await harbor.aclose()

    asyncio.run(live())
    assert sorted(ran) == list(range(64))
