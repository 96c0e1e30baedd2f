"""Jobs stored in the caller's own transaction: committed with it, and gone with it, on each kind of connection."""

import asyncio
import functools
from datetime import UTC, datetime

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from taskharbor.conformance.environment import opened
from taskharbor.drivers import Enqueued, InvalidJob, JobRecord
from taskharbor.drivers.connections import Kind, kind_of
from taskharbor.drivers.postgres import PostgresDriver
from tests.servers import postgres

pytestmark = pytest.mark.lane("postgres")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


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


class TestSynchronous:
    """psycopg, SQLAlchemy's Session and Connection, Django's."""

    def check(self, connection, commit, rollback):
        driver = PostgresDriver(address())  # not opened: the connection is the caller's
        assert driver.enqueue_on_sync(connection, [job("a")], NOW) == [Enqueued("a", False)]
        assert driver.enqueue_on_sync(connection, [job("a")], NOW) == [Enqueued("a", True)]
        assert asyncio.run(stored("a")) == [False]
        commit()
        assert asyncio.run(stored("a")) == [True]
        assert driver.enqueue_on_sync(connection, [job("b")], NOW) == [Enqueued("b", False)]
        rollback()
        assert asyncio.run(stored("a", "b")) == [True, False]
        with pytest.raises(InvalidJob, match="not stored"):
            driver.enqueue_on_sync(connection, [job("c", depends_on=("nobody",))], NOW)
        # The refusal has not spoilt the caller's transaction.
        assert driver.enqueue_on_sync(connection, [job("d")], NOW) == [Enqueued("d", False)]
        commit()
        assert asyncio.run(stored("d")) == [True]

    def test_psycopg(self):
        with psycopg.connect(address()) as connection:
            assert kind_of(connection) is Kind.PSYCOPG
            self.check(connection, connection.commit, connection.rollback)

    def test_session(self):
        engine = sqlalchemy.create_engine(address().replace("postgresql", "postgresql+psycopg"))
        with Session(engine) as session:
            assert kind_of(session) is Kind.SESSION
            self.check(session, session.commit, session.rollback)
        engine.dispose()

    def test_connection(self):
        engine = sqlalchemy.create_engine(address().replace("postgresql", "postgresql+psycopg"))
        with engine.connect() as connection:
            assert kind_of(connection) is Kind.CONNECTION
            self.check(connection, connection.commit, connection.rollback)
        engine.dispose()

    def test_django(self):
        connection = django_connection()
        assert kind_of(connection) is Kind.DJANGO
        connection.set_autocommit(False)
        try:
            self.check(connection, connection.commit, connection.rollback)
        finally:
            connection.rollback()
            connection.close()

    def test_wrong_colour_and_wrong_database(self):
        import sqlite3

        driver = PostgresDriver(address())
        with sqlite3.connect(":memory:") as other, pytest.raises(TypeError, match="postgresql"):
            driver.enqueue_on_sync(other, [job("a")], NOW)
        other.close()
        with psycopg.connect(address()) as connection, pytest.raises(TypeError, match="asynchronous"):
            asyncio.run(driver.enqueue_on(connection, [job("a")], NOW))
        with pytest.raises(TypeError, match="not a pool"):
            driver.enqueue_on_sync(object(), [job("a")], NOW)


class TestAsynchronous:
    """psycopg, asyncpg, SQLAlchemy's AsyncSession and AsyncConnection, over psycopg and over asyncpg."""

    async def check(self, connection, commit, rollback, begin=None):
        driver = PostgresDriver(address())
        assert await driver.enqueue_on(connection, [job("a")], NOW) == [Enqueued("a", False)]
        assert await driver.enqueue_on(connection, [job("a")], NOW) == [Enqueued("a", True)]
        assert await stored("a") == [False]
        await commit()
        assert await stored("a") == [True]
        if begin:
            await begin()
        assert await driver.enqueue_on(connection, [job("b")], NOW) == [Enqueued("b", False)]
        await rollback()
        assert await stored("a", "b") == [True, False]

    def test_psycopg(self):
        async def live():
            async with await psycopg.AsyncConnection.connect(address()) as connection:
                assert kind_of(connection) is Kind.PSYCOPG_ASYNC
                await self.check(connection, connection.commit, connection.rollback)

        asyncio.run(live())

    def test_asyncpg(self):
        async def live():
            connection = await asyncpg.connect(address())
            assert kind_of(connection) is Kind.ASYNCPG
            transactions = [connection.transaction()]
            await transactions[0].start()

            async def begin():
                transactions.append(connection.transaction())
                await transactions[-1].start()

            async def commit():
                await transactions[-1].commit()

            async def rollback():
                await transactions[-1].rollback()

            try:
                await self.check(connection, commit, rollback, begin)
            finally:
                await connection.close()

        asyncio.run(live())

    @pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
    def test_async_session(self, library):
        async def live():
            engine = create_async_engine(address().replace("postgresql", f"postgresql+{library}"))
            async with AsyncSession(engine) as session:
                assert kind_of(session) is Kind.ASYNC_SESSION
                await self.check(session, session.commit, session.rollback)
            await engine.dispose()

        asyncio.run(live())

    @pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
    def test_async_connection(self, library):
        async def live():
            engine = create_async_engine(address().replace("postgresql", f"postgresql+{library}"))
            connection: AsyncConnection
            async with engine.connect() as connection:
                assert kind_of(connection) is Kind.ASYNC_CONNECTION
                await self.check(connection, connection.commit, connection.rollback)
            await engine.dispose()

        asyncio.run(live())


def test_an_open_transaction_blocks_no_other_call():
    """Grouped, keyed and plain jobs of others are stored, reserved and settled while it is open."""
    from datetime import timedelta

    from taskharbor.drivers import Ack

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


@functools.cache
def django_connection():
    from django.conf import settings
    from django.db import connections

    server = postgres.shared()
    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    connections.databases["harbor"] = connections.configure_settings(
        {
            "default": {},
            "harbor": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": database(),
                "USER": "harbor",
                "HOST": "127.0.0.1",
                "PORT": str(server.port),
            },
        }
    )["harbor"]
    return connections["harbor"]


@pytest.mark.parametrize("others", [[], ["b"]])
def test_a_job_that_is_done_since_a_strict_transaction_began_is_not_stored_again(others):
    """Such a transaction does not see it. It is refused as any of its writes would be, and right when begun again."""
    from datetime import timedelta

    from taskharbor.drivers import Ack, Enqueued

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
