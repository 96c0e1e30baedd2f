"""Jobs stored in the transaction of SQLAlchemy's and Django's connections to the file, with the real libraries."""

import asyncio
import contextlib
import sqlite3
from datetime import UTC, datetime
from typing import Any

import django
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from taskharbor import Harbor, JobContext
from taskharbor.drivers import Enqueued, InvalidJob, JobRecord, WrongConnection
from taskharbor.drivers.sqlite import SqliteDriver

pytestmark = pytest.mark.lane("sqlite")
NOW = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


def job(id: str, **fields) -> JobRecord:
    given = {"payload": b"\x00\xff%s:?", "idempotency_key": f"key\x00{id}", "metadata": {"a:b?%s": "\x00é"}, **fields}
    return JobRecord(id=id, type="work", queue="q:%s?", created_at=NOW, **given)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


async def stored(path, *ids: str) -> list[bool]:
    driver = SqliteDriver(f"sqlite:///{path}")
    await driver.open()
    try:
        infos = (await driver.list(now=NOW, limit=1000)).items
        return [any(info.job == job(id) for info in infos) for id in ids]
    finally:
        await driver.close()


@contextlib.contextmanager
def django_connection(path):
    if not settings.configured:
        settings.configure(DATABASES={"default": {}}, USE_TZ=True)
        django.setup()
    made = {"default": {}, "file": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}}
    connections.databases["file"] = connections.configure_settings(made)["file"]
    try:
        yield connections["file"]
    finally:
        connections["file"].close()
        del connections["file"]
        del connections.databases["file"]


class TestSynchronous:
    """SQLAlchemy's Session and Connection, Django's."""

    def check(self, path, connection, commit, rollback):
        asyncio.run(stored(path))  # makes the file's schema
        driver = SqliteDriver(f"sqlite:///{path}")  # not opened: the connection is the caller's
        assert driver.enqueue_on_sync(connection, [job("a")], NOW) == [Enqueued("a", False)]
        assert driver.enqueue_on_sync(connection, [job("a")], NOW) == [Enqueued("a", True)]
        commit()
        assert asyncio.run(stored(path, "a")) == [True]
        assert driver.enqueue_on_sync(connection, [job("b")], NOW) == [Enqueued("b", False)]
        rollback()
        assert asyncio.run(stored(path, "a", "b")) == [True, False]
        with pytest.raises(InvalidJob, match="not stored"):
            driver.enqueue_on_sync(connection, [job("c", depends_on=("nobody",))], NOW)
        # The refusal has not spoilt the caller's transaction.
        assert driver.enqueue_on_sync(connection, [job("d")], NOW) == [Enqueued("d", False)]
        commit()
        assert asyncio.run(stored(path, "d")) == [True]

    def test_session(self, path):
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        with Session(engine) as session:
            self.check(path, session, session.commit, session.rollback)
        engine.dispose()

    def test_connection(self, path):
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            self.check(path, connection, connection.commit, connection.rollback)
        engine.dispose()

    def test_django_by_hand(self, path):
        with django_connection(path) as connection:
            connection.set_autocommit(False)
            self.check(path, connection, connection.commit, connection.rollback)

    def test_djangos_atomic(self, path):
        asyncio.run(stored(path))
        driver = SqliteDriver(f"sqlite:///{path}")
        with django_connection(path) as connection:
            with transaction.atomic("file"):
                driver.enqueue_on_sync(connection, [job("a")], NOW)
            with pytest.raises(ZeroDivisionError), transaction.atomic("file"):  # noqa: PT012 - both belong to the block
                driver.enqueue_on_sync(connection, [job("b")], NOW)
                raise ZeroDivisionError
            assert asyncio.run(stored(path, "a", "b")) == [True, False]
            with pytest.raises(WrongConnection, match=r"transaction\.atomic"):
                driver.enqueue_on_sync(connection, [job("c")], NOW)

    def test_the_applications_rows_go_the_same_way(self, path):
        """With the application's own rows read and written on both sides, and its rows made by a factory of its own."""
        engine = sqlalchemy.create_engine(f"sqlite:///{path}")
        driver = SqliteDriver(f"sqlite:///{path}")
        for number, end in enumerate(("rollback", "commit")):
            with engine.connect() as connection:
                inner: Any = connection.connection.driver_connection
                inner.row_factory, inner.text_factory = sqlite3.Row, bytes
                connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
                connection.exec_driver_sql("INSERT INTO orders VALUES (?)", (number,))
                driver.enqueue_on_sync(connection, [job("a")], NOW)
                assert (inner.row_factory, inner.text_factory) == (sqlite3.Row, bytes)
                inner.row_factory, inner.text_factory = None, str
                getattr(connection, end)()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT id FROM orders").fetchall() == [(1,)]
        engine.dispose()
        assert asyncio.run(stored(path, "a")) == [True]

    def test_autocommit_is_refused(self, path):
        engine = sqlalchemy.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
        asyncio.run(stored(path))
        with engine.connect() as connection, pytest.raises(WrongConnection, match="autocommit"):
            SqliteDriver(f"sqlite:///{path}").enqueue_on_sync(connection, [job("a")], NOW)
        engine.dispose()

    def test_another_file_another_database_and_the_wrong_colour_are_refused(self, path, tmp_path):
        asyncio.run(stored(path))
        driver = SqliteDriver(f"sqlite:///{path}")
        for other in (f"sqlite:///{tmp_path}/other.db", "sqlite://"):
            engine = sqlalchemy.create_engine(other)
            with Session(engine) as session:
                with pytest.raises(ValueError, match="one transaction cannot hold both"):
                    driver.enqueue_on_sync(session, [job("a")], NOW)
                with pytest.raises(TypeError, match="asynchronous"):
                    asyncio.run(driver.enqueue_on(session, [job("a")], NOW))
            engine.dispose()
        elsewhere = Session(sqlalchemy.create_engine("postgresql+psycopg://nowhere/none"))
        with pytest.raises(TypeError, match="expected one to sqlite, where the jobs are kept, got one to postgresql"):
            driver.enqueue_on_sync(elsewhere, [job("a")], NOW)


class TestAsynchronous:
    """SQLAlchemy's AsyncSession and AsyncConnection, over aiosqlite."""

    async def check(self, path, connection):
        await stored(path)
        driver = SqliteDriver(f"sqlite:///{path}")
        assert await driver.enqueue_on(connection, [job("a")], NOW) == [Enqueued("a", False)]
        assert await driver.enqueue_on(connection, [job("a")], NOW) == [Enqueued("a", True)]
        await connection.commit()
        assert await stored(path, "a") == [True]
        assert await driver.enqueue_on(connection, [job("b")], NOW) == [Enqueued("b", False)]
        await connection.rollback()
        assert await stored(path, "a", "b") == [True, False]
        with pytest.raises(InvalidJob, match="not stored"):
            await driver.enqueue_on(connection, [job("c", depends_on=("nobody",))], NOW)
        many = [job(f"d{number}") for number in range(120)]
        assert await driver.enqueue_on(connection, many, NOW) == [Enqueued(record.id, False) for record in many]
        await connection.commit()
        assert await stored(path, "d0", "d119") == [True, True]
        with pytest.raises(TypeError, match="synchronous"):
            driver.enqueue_on_sync(connection, [job("e")], NOW)

    def test_async_session(self, path):
        async def live():
            engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
            async with AsyncSession(engine) as session:
                await self.check(path, session)
            await engine.dispose()

        asyncio.run(live())

    def test_async_connection(self, path):
        async def live():
            engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
            async with engine.connect() as connection:
                await self.check(path, connection)
            await engine.dispose()

        asyncio.run(live())

    def test_another_file_is_refused(self, path, tmp_path):
        async def live():
            await stored(path)
            engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/other.db")
            async with AsyncSession(engine) as session:
                with pytest.raises(ValueError, match="one transaction cannot hold both"):
                    await SqliteDriver(f"sqlite:///{path}").enqueue_on(session, [job("a")], NOW)
            await engine.dispose()

        asyncio.run(live())


def test_tasks_are_enqueued_with_the_session_and_from_within_a_handlers_transaction(path):
    """As users write it: the first job comes with a session, the second with what the handler of the first writes."""
    harbor = Harbor(f"sqlite:///{path}")
    ran: list[str] = []
    arrived = asyncio.Event()

    @harbor.task
    async def second() -> None:
        ran.append("second")
        arrived.set()

    @harbor.task
    async def first(ctx: JobContext, fail: bool) -> None:
        ran.append("first")
        async with ctx.transaction() as connection:
            connection.execute("INSERT INTO orders VALUES ('made')")
            await second.options(connection=connection).aenqueue()
            if fail:
                raise ZeroDivisionError

    async def live():
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}", poolclass=NullPool)
        async with AsyncSession(engine) as session:
            await session.execute(sqlalchemy.text("CREATE TABLE orders (name TEXT)"))
            await first.options(connection=session, max_attempts=1).aenqueue(True)
            await first.options(connection=session).aenqueue(False)
            await session.commit()
            await first.options(connection=session).aenqueue(False)
            await session.rollback()
        await engine.dispose()
        worker = harbor.worker(poll_interval=0.05)
        running = asyncio.create_task(worker.arun())
        async with asyncio.timeout(60):
            await arrived.wait()
        worker.stop()
        await running
        await harbor.aclose()

    asyncio.run(live())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM orders").fetchall() == [("made",)]
    jobs = connection.execute("SELECT type, state FROM taskharbor_jobs ORDER BY num").fetchall()
    assert [(type.rpartition(".")[2], state) for type, state in jobs] == [("first", 4), ("first", 3), ("second", 3)]
    connection.close()
    assert sorted(ran) == ["first", "first", "second"]
