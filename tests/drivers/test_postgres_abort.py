"""A handler's transaction that is ended from outside, whatever the handler is doing: its locks are free at once,
nothing that was written stays, and what the handler does later is refused with the reason."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from taskharbor.drivers import Ack, JobRecord
from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = 60.0
WORDS = "job a was rolled back, because it took longer than its timeout of 1 s"


@pytest.fixture
def address():
    made = postgres.shared().address(postgres.shared().store())
    with psycopg.connect(made, autocommit=True) as connection:
        connection.execute("create table orders (number integer)")
        connection.execute("insert into orders values (1)")
    return made


async def taken(driver: PostgresDriver):
    await driver.open()
    await driver.enqueue([JobRecord(id="a", type="t")], NOW)
    return (await driver.reserve(["default"], NOW, timedelta(seconds=30), 1))[0].lease


def running(address: str) -> bool:
    with psycopg.connect(address, autocommit=True) as connection:
        query = "select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(1000)%'"
        return connection.execute(query + " and pid <> pg_backend_pid()").fetchone() != (0,)


def free_and_untouched(address: str) -> bool:
    """Nobody holds the row, and it is as it was."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"set lock_timeout = '{LONG:.0f}s'")
        return connection.execute("update orders set number = number returning number").fetchall() == [(1,)]


DOING = {
    "nothing": None,
    "a long statement": "select pg_sleep(1000)",
    "fetching": "select generate_series(1, 1000000000)",
}


@pytest.mark.parametrize("doing", DOING)
def test_a_plain_function(address, doing):
    async def live():
        driver = PostgresDriver(address)
        lease = await taken(driver)
        transaction, begun, go_on = driver.transaction_sync(lease), threading.Event(), threading.Event()

        def handler():
            with transaction as connection:
                connection.execute("update orders set number = 2")
                begun.set()
                if (sql := DOING[doing]) is None:
                    assert go_on.wait(LONG)
                    sql = "insert into orders values (3)"
                connection.execute(sql.encode())

        task = asyncio.create_task(asyncio.to_thread(handler))
        assert await asyncio.to_thread(begun.wait, LONG)
        while doing == "a long statement" and not await asyncio.to_thread(running, address):
            pass
        await asyncio.to_thread(transaction.abort, "it took longer than its timeout of 1 s")
        assert await asyncio.to_thread(free_and_untouched, address)
        assert not await asyncio.to_thread(running, address)
        await driver.fail(lease, NOW, "timed out", attempts=1)
        go_on.set()
        with pytest.raises(psycopg.InterfaceError, match=WORDS):
            await task
        with pytest.raises(psycopg.InterfaceError, match=WORDS):
            transaction.__enter__()
        transaction.rollback()
        transaction.abort("again")
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), LONG))


@pytest.mark.parametrize("doing", ["nothing", "a long statement"])
def test_a_coroutine(address, doing):
    async def live():
        driver = PostgresDriver(address)
        lease = await taken(driver)
        transaction, begun, go_on = driver.transaction(lease), asyncio.Event(), asyncio.Event()

        async def handler():
            async with transaction as connection:
                await connection.execute("update orders set number = 2")
                begun.set()
                if DOING[doing] is None:
                    await go_on.wait()
                await connection.execute((DOING[doing] or "insert into orders values (3)").encode())

        task = asyncio.create_task(handler())
        await begun.wait()
        while doing == "a long statement" and not await asyncio.to_thread(running, address):
            pass
        await transaction.abort("it took longer than its timeout of 1 s")
        assert await asyncio.to_thread(free_and_untouched, address)
        await driver.fail(lease, NOW, "timed out", attempts=1)
        go_on.set()
        with pytest.raises(psycopg.InterfaceError, match=WORDS):
            await task
        with pytest.raises(psycopg.InterfaceError, match=WORDS):
            await transaction.__aenter__()
        await transaction.rollback()
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), LONG))


def test_before_it_begins_and_after_its_commit(address):
    async def live():
        driver = PostgresDriver(address)
        lease = await taken(driver)
        never = driver.transaction(lease)
        await never.abort("it is over")
        with pytest.raises(psycopg.InterfaceError, match="because it is over"):
            await never.__aenter__()
        plain = driver.transaction_sync(lease)
        plain.abort("it is over")
        with pytest.raises(psycopg.InterfaceError, match="because it is over"):
            plain.__enter__()
        kept = driver.transaction(lease)
        async with kept as connection:
            await connection.execute("update orders set number = 2")
        assert await kept.commit(Ack(lease), NOW) is None
        await kept.abort("too late")
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), LONG))
    with psycopg.connect(address) as connection:
        assert connection.execute("select number from orders").fetchall() == [(2,)]
