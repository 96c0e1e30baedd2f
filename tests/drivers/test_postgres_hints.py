"""Hints: who is notified, how often, and what finds the work whose hint was lost."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from taskharbor.drivers import JobRecord
from taskharbor.drivers.postgres import wait
from tests.drivers.postgres_stores import store_test

pytestmark = pytest.mark.lane("postgres")
LEASE = timedelta(seconds=60)
PATIENCE_S = 60.0


def job(id: str, queue: str = "default", **more) -> JobRecord:
    return JobRecord(id=id, type="t", queue=queue, **more)


async def registered(driver, number=1):
    async with asyncio.timeout(PATIENCE_S):
        while len(await driver._execute("select 1 from taskharbor.waiting")) < number:
            await asyncio.sleep(0)


@store_test(2)
async def test_transactions_of_callers_notify_once_in_a_while(address, driver, other):
    """Each NOTIFY holds a lock of the server until its commit is flushed."""
    await driver._execute("insert into taskharbor.waiting (queue, waiter) values ('default', 'idle')")
    now = await driver.server_time()
    heard = []
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as listening:
        assert other._hints is not None
        await listening.execute(f'listen "{other._hints.channel}"')
        async with await psycopg.AsyncConnection.connect(address) as mine:
            for number in range(50):
                # As if another had sent one at this moment, whatever the machine is busy with.
                await listening.execute(
                    "select setval('taskharbor.hinted_at', 40 + (1000 * extract(epoch from clock_timestamp()))::bigint)"
                )
                await driver.enqueue_on(mine, [job(f"j{number}")], now)
                await mine.commit()
        await listening.execute("select pg_notify(%s, 'end')", (other._hints.channel,))
        async for notify in listening.notifies(timeout=PATIENCE_S):
            if notify.payload == "end":
                break
            heard.append(notify.payload)
    assert len(heard) < 10, f"{len(heard)} of 50 transactions notified"


@store_test(2)
async def test_a_hint_of_a_transaction_wakes_a_waiter(address, driver, other, monkeypatch):
    monkeypatch.setattr(wait, "SWEEP_S", PATIENCE_S)
    await driver._execute("select setval('taskharbor.hinted_at', 1)")  # another test may have sent one just now
    now = await driver.server_time()
    waiting = asyncio.create_task(driver.wait(["default"], PATIENCE_S))
    await registered(other)
    async with await psycopg.AsyncConnection.connect(address) as mine:
        await other.enqueue_on(mine, [job("a")], now)
        await mine.commit()
    assert await waiting is True


@store_test(2)
async def test_a_transaction_behind_the_hint_of_another_is_found_as_well(address, driver, other, monkeypatch):
    """The second sends no hint of its own, and commits a little later."""
    monkeypatch.setattr(wait, "SWEEP_S", PATIENCE_S)
    await driver._execute("select setval('taskharbor.hinted_at', 1)")  # another test may have sent one just now
    now = await driver.server_time()
    waiting = asyncio.create_task(driver.wait(["second"], PATIENCE_S))
    await registered(other)
    connect = psycopg.AsyncConnection.connect
    async with await connect(address) as one, await connect(address) as two:
        await other.enqueue_on(one, [job("a", "first")], now)
        await other.enqueue_on(two, [job("b", "second")], now)
        await one.commit()
        await two.commit()
    assert await waiting is True


@store_test(3)
async def test_one_waiter_finds_what_falls_due_for_all(address, one, two, other):
    """A job that becomes due sends no hint, nor does one whose hint was turned off, nor a lease that ends."""
    now = await other.server_time()
    await other.enqueue([job("lost", "leased")], now)
    assert await other.reserve(["leased"], now, timedelta(milliseconds=1), 1)
    waits = [asyncio.create_task(each.wait([name], PATIENCE_S)) for each, name in ((one, "leased"), (two, "silent"))]
    await registered(other, 2)
    async with await psycopg.AsyncConnection.connect(address) as mine:
        await mine.execute("select set_config('taskharbor.hints', 'off', true)")
        await other.enqueue_on(mine, [job("b", "silent")], now)
        await mine.commit()
    assert await asyncio.gather(*waits) == [True, True]
    assert sorted([one._hints.sweeps, two._hints.sweeps]) == [False, True]


@store_test()
async def test_an_idle_waiter_holds_one_connection(address, driver):
    waiting = asyncio.create_task(driver.wait(["default"], PATIENCE_S))
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as looking:
        async with asyncio.timeout(PATIENCE_S):
            while (await (await looking.execute("select 1 from taskharbor.waiting")).fetchone()) is None:
                await asyncio.sleep(0)
        cursor = await looking.execute(
            "select query from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
            "and application_name = 'taskharbor'"
        )
        assert len(await cursor.fetchall()) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
