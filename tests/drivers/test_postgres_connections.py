"""Jobs stored in the caller's own transaction: committed with it, and gone with it, on each kind of connection."""

import asyncio
import contextlib
import functools
import sqlite3
from datetime import timedelta

import psycopg
import pytest

from taskharbor.conformance.environment import opened
from taskharbor.drivers import Ack, Enqueued, InvalidJob, JobRecord
from taskharbor.drivers.connections import kind_of
from taskharbor.drivers.postgres import PostgresDriver
from tests.drivers.postgres_ways import NOW, every_way
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")


@functools.cache
def database() -> str:
    return postgres.shared().database()


def address() -> str:
    return postgres.shared().address(database())


def job(id: str, **fields) -> JobRecord:
    given = {"payload": b"\x00\xff%s:?", "idempotency_key": f"key\x00{id}", "metadata": {"a:b?%s": "\x00é"}, **fields}
    return JobRecord(id=id, type="work", queue="q:%s?", created_at=NOW, **given)


async def stored(*ids: str) -> list[bool]:
    async with opened(PostgresDriver(address())) as driver:
        infos = (await driver.list(now=NOW, limit=1000)).items
    return [any(info.job == job(id) for info in infos) for id in ids]


@pytest.fixture(autouse=True)
def _emptied():
    async def made() -> None:
        driver = PostgresDriver(address())
        await driver.open()
        await driver.close()

    asyncio.run(made())
    postgres.empty(address())


@every_way
def test_jobs_are_committed_with_the_transaction_and_gone_with_it(way):
    async def live():
        driver = PostgresDriver(address())  # not opened: the connection is the caller's
        async with way(address(), False) as caller:
            assert kind_of(caller.connection) is caller.kind
            for existed in (False, True):
                assert await caller.enqueue(driver, job("a")) == [Enqueued("a", existed)]
            assert await stored("a") == [False]
            await caller.commit()
            assert await stored("a") == [True]
            assert await caller.enqueue(driver, job("b")) == [Enqueued("b", False)]
            await caller.rollback()
            assert await stored("a", "b") == [True, False]
            with pytest.raises(InvalidJob, match="not stored"):
                await caller.enqueue(driver, job("c", depends_on=("nobody",)))
            # The refusal has not spoilt the caller's transaction.
            assert await caller.enqueue(driver, job("d")) == [Enqueued("d", False)]
            await caller.commit()
            assert await stored("d") == [True]

    asyncio.run(live())


def test_wrong_colour_and_wrong_database():
    driver = PostgresDriver(address())
    with contextlib.closing(sqlite3.connect(":memory:")) as other, pytest.raises(TypeError, match="postgresql"):
        driver.enqueue_on_sync(other, [job("a")], NOW)
    with psycopg.connect(address()) as connection, pytest.raises(TypeError, match="asynchronous"):
        asyncio.run(driver.enqueue_on(connection, [job("a")], NOW))
    with pytest.raises(TypeError, match="not a pool"):
        driver.enqueue_on_sync(object(), [job("a")], NOW)


def test_an_open_transaction_blocks_no_other_call():
    """Grouped, keyed and plain jobs of others are stored, reserved and settled while it is open."""

    async def live() -> None:
        driver = PostgresDriver(address())
        await driver.open()
        await driver.enqueue([job("z", idempotency_key=None, group="g", group_limit=2)], NOW)
        with psycopg.connect(address()) as connection:
            driver.enqueue_on_sync(connection, [job("a", group="g", group_limit=3), job("b")], NOW)
            await driver.enqueue([job("y", group="g"), job("x")], NOW)
            held = await driver.reserve(["q:%s?"], NOW, timedelta(seconds=9), 10)
            assert sorted(item.job.id for item in held) == ["x", "y", "z"]
            assert await driver.settle([Ack(item.lease) for item in held], NOW) == [None] * 3
            connection.commit()
        held = await driver.reserve(["q:%s?"], NOW, timedelta(seconds=9), 10)
        assert sorted(item.job.id for item in held) == ["a", "b"]
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), 60))


@pytest.mark.parametrize("others", [[], ["b"]])
def test_a_job_that_is_done_since_a_strict_transaction_began_is_not_stored_again(others):
    """Such a transaction does not see it. It is refused as any of its writes would be, and right when begun again."""

    async def live() -> None:
        driver = PostgresDriver(address())
        await driver.open()
        with psycopg.connect(address()) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("select 1")
            await driver.enqueue([job("a", idempotency_key=None)], NOW)
            (held,) = await driver.reserve(["q:%s?"], NOW, timedelta(seconds=9), 1)
            assert await driver.settle([Ack(held.lease)], NOW) == [None]
            mine = [job(id, idempotency_key=None) for id in ["a", *others]]
            with pytest.raises(psycopg.errors.SerializationFailure):
                driver.enqueue_on_sync(connection, mine, NOW)
            connection.rollback()
            assert driver.enqueue_on_sync(connection, mine, NOW) == [
                Enqueued("a", True),
                *(Enqueued(id, False) for id in others),
            ]
            connection.commit()
        counts = (await driver.counts(NOW))["q:%s?"]
        assert counts == ({"done": 1, "ready": 1} if others else {"done": 1})
        await driver.close()

    asyncio.run(asyncio.wait_for(live(), 60))
